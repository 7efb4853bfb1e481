package secret

import "strings"

// A rule says what becomes of the strings and numbers at a place, and below it.
type rule int

const (
	look   rule = iota // they stay; a string that looks like a key is a suspect
	all                // they are taken, but for the empty string
	config             // strings are taken, but for those of a harmless name
	plain              // a string is taken if it looks like a key
	url                // a string is taken if it is more than the plain address of something
	line               // a command line: the first is a word, the others are taken
	word               // a string is taken if it is more than the name of a command
)

// table has the places of a run setting, * for any member or element. A row counts for
// what is below it, unless a name there or another row says otherwise; what is below all
// stays so. The first row that fits counts. Those of look have names that the user chose,
// so that they say nothing. What is not here, such as env, perstackApiKey and proxyUrl, is
// known by its name.
var table = []struct {
	path string
	rule rule
}{
	{"/providerConfig", config},
	{"/perstackBaseSkillCommand", line},
	{"/experts/*", look},
	{"/experts/*/skills/*", look},
	{"/experts/*/skills/*/args", all},
	{"/experts/*/skills/*/command", line},
	{"/experts/*/skills/*/tools/*", look},
}

// harmless are the names of strings of a provider's settings that are no secrets. All
// others are, so those of a provider that nobody has heard of too. Names are compared in
// lower case, without what separates words.
var harmless = names("api version", "deployment name", "location", "model", "project", "provider name", "region", "resource name", "type")

// containers are names below which everything is taken, wherever they stand.
var containers = names("auth", "cookies", "credentials", "env", "environment", "headers", "secrets")

// secretEnds and addressEnds are the ends of names of what is a secret, or may have one in
// it, wherever it stands.
var (
	secretEnds = ends("access key", "access key id", "api key", "authorization", "bearer", "connection string", "cookie", "credential", "passphrase",
		"passwd", "password", "private key", "secret", "secret key", "token")
	addressEnds = ends("dsn", "endpoint", "proxy", "uri", "uris", "url", "urls", "webhook")
)

// names makes a set of names.
func names(list ...string) map[string]bool {
	set := make(map[string]bool)
	for _, name := range list {
		set[bare(name)] = true
	}
	return set
}

// ends makes a list of ends of names.
func ends(list ...string) []string {
	for i := range list {
		list[i] = bare(list[i])
	}
	return list
}

// bare is a name without what people write in different ways: apiKey, api_key, API-KEY.
func bare(name string) string {
	return between.Replace(strings.ToLower(name))
}

var between = strings.NewReplacer("-", "", "_", "", " ", "", ".", "")

// below returns the rule of a member that has a path and a name, by that of what it is in.
func below(outer rule, path []string, name string) rule {
	r, ok := placed(outer, path)
	if ok {
		return r
	}
	name = bare(name)
	switch {
	case containers[name] || endsIn(name, secretEnds):
		return all
	case endsIn(name, addressEnds):
		return url
	case r == config && harmless[name]:
		return plain
	}
	return r
}

// within returns the rule of an element of an array that has a path and a number.
func within(outer rule, path []string, n int) rule {
	if outer == line && n == 0 {
		return word
	}
	r, _ := placed(outer, path)
	return r
}

// placed returns the rule of a path, and whether the table of places alone decides it. If it
// does not, the rule is that of what it is in.
func placed(outer rule, path []string) (r rule, ok bool) {
	switch outer {
	case all, line, word: // an object is not a line, and a list not a word
		return all, true
	case plain: // a harmless name is that of a string
		outer = config
	}
	for _, p := range table {
		if fits(p.path, path) {
			return p.rule, true
		}
	}
	return outer, false
}

// fits reports whether a path is what a pattern says.
func fits(pattern string, path []string) bool {
	for _, name := range path {
		var want string
		if want, pattern, _ = strings.Cut(strings.TrimPrefix(pattern, "/"), "/"); want == "" || want != "*" && want != name {
			return false
		}
	}
	return pattern == ""
}

func endsIn(name string, list []string) bool {
	for _, end := range list {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

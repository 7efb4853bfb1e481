package secret

import "strings"

// A rule determines how strings and numbers at a position, and below it, are treated.
type rule int

const (
	look   rule = iota // they stay; a string that looks like a key is a suspect
	all                // they are taken, except the empty string
	config             // strings are taken, except those with a harmless name
	plain              // a string is taken if it looks like a key
	url                // a string is taken unless it is a plain address
	line               // a command line: the first element has the rule word, the others are taken
	word               // a string is taken unless it is only the name of a command
)

// table has positions of a run setting; * matches any member or element. A row applies to everything below its
// position, unless a name or another row there overrides it. Below all, everything is taken. The first matching row
// counts. In rows with look, the user chose the names, so names do not count. Other positions, such as env,
// perstackApiKey and proxyUrl, are identified by name.
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

// harmless are names of strings in a provider's settings that are not secrets. All others are secrets, also those of
// unknown providers. Names are compared in lower case, without word separators.
var harmless = names("api version", "deployment name", "location", "model", "project", "provider name", "region", "resource name", "type")

// containers are names below which everything is taken, at any position.
var containers = names("auth", "cookies", "credentials", "env", "environment", "headers", "secrets")

// secretEnds and addressEnds are suffixes of names of secrets, and of addresses that may contain one, at any position.
var (
	secretEnds = ends("access key", "access key id", "api key", "authorization", "bearer", "connection string", "cookie", "credential", "passphrase",
		"passwd", "password", "private key", "secret", "secret key", "token")
	addressEnds = ends("dsn", "endpoint", "proxy", "uri", "uris", "url", "urls", "webhook")
)

// names returns a set of names.
func names(list ...string) map[string]bool {
	set := make(map[string]bool)
	for _, name := range list {
		set[bare(name)] = true
	}
	return set
}

// ends returns a list of suffixes of names.
func ends(list ...string) []string {
	for i := range list {
		list[i] = bare(list[i])
	}
	return list
}

// bare returns a name without spelling differences: apiKey, api_key, API-KEY.
func bare(name string) string {
	return between.Replace(strings.ToLower(name))
}

var between = strings.NewReplacer("-", "", "_", "", " ", "", ".", "")

// below returns the rule of a member by its path and name. outer is the rule of its parent.
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

// within returns the rule of an array's element by its path and number.
func within(outer rule, path []string, n int) rule {
	if outer == line && n == 0 {
		return word
	}
	r, _ := placed(outer, path)
	return r
}

// placed returns the rule of a path, and whether the table alone decides it. Otherwise the rule is outer, that of the
// parent.
func placed(outer rule, path []string) (r rule, ok bool) {
	switch outer {
	case all, line, word: // an object is not a line, and a list is not a word
		return all, true
	case plain: // a harmless name applies to a string
		outer = config
	}
	for _, p := range table {
		if fits(p.path, path) {
			return p.rule, true
		}
	}
	return outer, false
}

// fits reports whether a path matches a pattern.
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

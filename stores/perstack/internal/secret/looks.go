package secret

import (
	"regexp"
	"strings"
	"unicode"
)

// keys are the forms of keys that can be told by how they begin.
var keys = regexp.MustCompile(strings.Join([]string{
	`\b(?:sk|rk|gsk|xai|pplx)[-_][A-Za-z0-9_-]{8,}`,
	`\bAIza[A-Za-z0-9_-]{16,}`, `\bya29\.[A-Za-z0-9_-]{8,}`,
	`\bgh[oprsu]_[A-Za-z0-9]{8,}`, `\bgithub_pat_\w{8,}`, `\bglpat-[A-Za-z0-9_-]{8,}`,
	`\b(?:hf|npm|pypi|dop_v1)[-_][A-Za-z0-9_-]{16,}`, `\bxox[a-z]-[A-Za-z0-9-]{8,}`, `\bxapp-[A-Za-z0-9-]{8,}`,
	`\b(?:AKIA|ASIA)[A-Z0-9]{12,}`, `\bSG\.[A-Za-z0-9_-]{8,}`, `\bAGE-SECRET-KEY-`,
	`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`,
	`-----BEGIN [A-Z0-9 ]*PRIVATE KEY`,
	`\b(?:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{8,}`,
	`://(?:[^\s/@:?#]*:[^\s/@${}<>]+|[^\s/@:?#${}<>]{12,})@`,
	`(?i)[?&;#][^=&\s#]*(?:key|token|secret|sig|signature|passw(?:or)?d|auth|credential)[^=&\s#]*=[^&\s#"'${}<>]{4}`,
}, "|"))

// assigned finds what follows the name of a secret in a text.
var assigned = regexp.MustCompile(`(?i)(?:passw(?:or)?d|passphrase|secret|api[_-]?key|token|bearer|basic)["']?(?:\s*[=:]\s*|\s+)["']?([^\s"'${}<>,;]{8,})`)

// apart is what stands between the words of a text, a path, an address.
func apart(r rune) bool {
	return !(r == '_' || r == '-' || r == '+' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9')
}

// looksLikeKey reports whether there is something in a text that may be a key.
func looksLikeKey(text string) bool {
	if len(text) < 8 {
		return false
	}
	if keys.MatchString(text) {
		return true
	}
	for _, found := range assigned.FindAllStringSubmatch(text, -1) {
		if strings.ContainsFunc(found[1], unicode.IsDigit) && strings.ContainsFunc(found[1], unicode.IsLetter) {
			return true
		}
	}
	before := ""
	for w := range strings.FieldsFuncSeq(text, apart) {
		if isRandom(w) && !hash.MatchString(before) && !hash.MatchString(w) {
			return true
		}
		before = w
	}
	return false
}

// isRandom reports whether a word is as if drawn at random: people change between lower
// case, upper case and digits much less often than chance does. What has two of these has
// to be longer than ids are that runs and calls have.
func isRandom(w string) bool {
	if len(w) < 20 || id.MatchString(w) {
		return false
	}
	kinds, last, changes, distinct := [3]int{}, -1, 0, [128]bool{}
	many := 0
	for _, r := range w {
		k := kindOf(r)
		if !distinct[r] {
			distinct[r] = true
			many++
		}
		if k < 0 {
			continue
		}
		kinds[k]++
		if last >= 0 && k != last {
			changes++
		}
		last = k
	}
	several := 0
	for _, n := range kinds {
		if n > 1 {
			several++
		}
	}
	often := func(part int) bool { return changes*100 >= part*len(w) }
	switch {
	case many < 10:
		return false
	case several == 3:
		return often(35)
	case several == 2:
		return len(w) >= 32 && often(25)
	}
	return false
}

// kindOf tells lower case, upper case and digits apart; -1 is what is none of them.
func kindOf(r rune) int {
	switch {
	case 'a' <= r && r <= 'z':
		return 0
	case 'A' <= r && r <= 'Z':
		return 1
	case '0' <= r && r <= '9':
		return 2
	}
	return -1
}

var (
	// id is the form of a UUID, and of a commit's name.
	id = regexp.MustCompile(`^(?:[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|[0-9a-f]{40})$`)

	// hash is how a hash begins, sha512-..., or what stands before it, sha256:...
	hash = regexp.MustCompile(`^(?i:sha-?(?:1|256|384|512))(?:-|$)`)
)

var (
	address = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?(?:/[A-Za-z0-9._~/-]*)?$`)
	command = regexp.MustCompile(`^[A-Za-z0-9_./~@-]+$`)
)

// isAddress reports whether a URL is a scheme, a host and a path, and nothing in it looks
// like a key: no user, no query.
func isAddress(text string) bool { return address.MatchString(text) && !looksLikeKey(text) }

// isCommand reports whether a text names a command, and no more.
func isCommand(text string) bool { return command.MatchString(text) && !looksLikeKey(text) }

// isReference reports whether a value is called an id of something, and is no key by its
// form: ids are random too.
func isReference(path []string, text string) bool {
	if len(path) == 0 {
		return false
	}
	name := path[len(path)-1]
	return (strings.HasSuffix(name, "Id") || strings.HasSuffix(name, "ID") || name == "id") && !keys.MatchString(text)
}

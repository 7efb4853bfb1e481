package secret

import (
	"iter"
	"regexp"
	"strings"
	"sync"
)

// begins are prefixes of known services' keys, each with the minimum number of letters, digits and - _ . after it.
var begins = []struct {
	text  string
	least int
}{
	{"sk-", 8}, {"sk_", 8}, {"rk_", 8}, {"gsk_", 8}, {"xai-", 8}, {"pplx-", 8}, {"AIza", 16}, {"ya29.", 8},
	{"ghp_", 8}, {"gho_", 8}, {"ghu_", 8}, {"ghs_", 8}, {"ghr_", 8}, {"github_pat_", 8}, {"glpat-", 8},
	{"hf_", 16}, {"npm_", 16}, {"pypi-", 16}, {"dop_v1_", 16}, {"xoxa-", 8}, {"xoxb-", 8}, {"xoxp-", 8}, {"xoxr-", 8}, {"xoxs-", 8}, {"xapp-", 8},
	{"AKIA", 12}, {"ASIA", 12}, {"SG.", 8}, {"eyJ", 20}, {"AGE-SECRET-KEY-", 8}, {"AccountKey=", 8}, {"SharedAccessKey=", 8},
}

// window is how many bytes after a possible start of a key are examined.
const window = 256

// looksLikeKey reports whether a text may contain a key. It searches for fixed words first, because texts may be long
// and rarely contain keys.
func looksLikeKey(text string) bool {
	return len(text) >= 8 && (beginsLikeKey(text) || isInAddress(text) || isAssigned(text) || hasRandom(text))
}

// beginsLikeKey reports whether a text contains a key with a known prefix.
func beginsLikeKey(text string) bool {
	for _, b := range begins {
		for i := range occurrences(text, b.text) {
			if i > 0 && (isWord(text[i-1]) || text[i-1] == '_') {
				continue
			}
			n := 0
			for _, c := range []byte(text[i+len(b.text):]) {
				if !isWord(c) && c != '-' && c != '_' && c != '.' {
					break
				}
				if n++; n == b.least {
					return true
				}
			}
		}
	}
	return strings.Contains(text, "-----BEGIN ") && strings.Contains(text, "PRIVATE KEY")
}

// pattern returns an expression that is compiled on first use, to keep the start of a program fast.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// secretWords occur in the names of secret query parameters.
var secretWords = []string{"key", "token", "secret", "sig", "passwd", "password", "auth", "credential"}

var user = pattern(`^://(?:[^\s/@:?#]*:[^\s/@${}<>]+|[^\s/@:?#${}<>]{12,})@`)

// isInAddress reports whether a text contains a URL with a password, or with a token in its query.
func isInAddress(text string) bool {
	for i := range occurrences(text, "://") {
		if user().MatchString(text[i:min(i+window, len(text))]) {
			return true
		}
	}
	for i := range occurrences(text, "=") {
		name := text[max(i-64, 0):i]
		name = name[strings.LastIndexAny(name, "= \t\r\n\"'")+1:]
		at := strings.LastIndexAny(name, "?&;#")
		value := text[i+1 : min(i+5, len(text))]
		if at >= 0 && len(value) == 4 && !strings.ContainsAny(value, "& \t\r\n#\"'${}<>") && hasAny(strings.ToLower(name[at:]), secretWords) {
			return true
		}
	}
	return false
}

var (
	assigners = []string{"password", "passwd", "passphrase", "secret", "apikey", "api_key", "api-key", "token", "bearer", "basic"}
	assigned  = pattern(`^[a-z_-]+["']?(?:\s*[=:]\s*|\s+)["']?([^\s"'${}<>,;]{8,})`)
)

// isAssigned reports whether a text has a word such as password, followed by a value with letters and digits.
func isAssigned(text string) bool {
	low := lower(text)
	for _, word := range assigners {
		for i := range occurrences(low, word) {
			found := assigned().FindStringSubmatch(low[i:min(i+window, len(low))])
			if found != nil && strings.ContainsAny(found[1], "0123456789") && strings.ContainsAny(found[1], "abcdefghijklmnopqrstuvwxyz") {
				return true
			}
		}
	}
	return false
}

// hasRandom reports whether a text contains a word that looks random and is not a hash.
func hasRandom(text string) bool {
	before := ""
	for w := range strings.FieldsFuncSeq(text, apart) {
		if len(w) >= 20 && isRandom(w) && !id().MatchString(w) && !hash().MatchString(before) && !hash().MatchString(w) {
			return true
		}
		before = w
	}
	return false
}

// apart reports whether a character separates words of a text, a path, an address.
func apart(r rune) bool {
	return r >= 128 || !isWord(byte(r)) && r != '_' && r != '-' && r != '+'
}

// isRandom reports whether a word looks random: people change between lower case, upper case and digits less often than
// chance does. A word with only two of these classes must be longer than ids of runs and calls.
func isRandom(w string) bool {
	var kinds [3]int
	var seen [128]bool
	last, changes, distinct := -1, 0, 0
	for _, c := range []byte(w) {
		if !seen[c] {
			seen[c] = true
			distinct++
		}
		k := kindOf(c)
		if k < 0 {
			continue
		}
		if kinds[k]++; last >= 0 && k != last {
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
	percent := changes * 100 / len(w)
	return distinct >= 10 && (several == 3 && percent >= 35 || several == 2 && len(w) >= 32 && percent >= 25)
}

// kindOf returns a number for lower case, upper case and digits, and -1 for other characters.
func kindOf(c byte) int {
	switch {
	case 'a' <= c && c <= 'z':
		return 0
	case 'A' <= c && c <= 'Z':
		return 1
	case '0' <= c && c <= '9':
		return 2
	}
	return -1
}

func isWord(c byte) bool { return kindOf(c) >= 0 }

// occurrences yields the offsets of a text inside another.
func occurrences(text, what string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for at := 0; ; {
			i := strings.Index(text[at:], what)
			if i < 0 || !yield(at+i) {
				return
			}
			at += i + len(what)
		}
	}
}

// lower returns a text with its ASCII letters in lower case. Offsets stay the same.
func lower(text string) string {
	b := []byte(text)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func hasAny(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

var (
	// id matches a UUID or the name of a commit.
	id = pattern(`^(?:[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|[0-9a-f]{40})$`)

	// hash matches a hash, sha512-..., or the word before it, sha256:...
	hash = pattern(`^(?i:sha-?(?:1|256|384|512))(?:-|$)`)

	address = pattern(`^[A-Za-z][A-Za-z0-9+.-]*://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?(?:/[A-Za-z0-9._~/-]*)?$`)
	command = pattern(`^[A-Za-z0-9_./~@-]+$`)
)

// isAddress reports whether a URL has only a scheme, a host and a path, and no part looks like a key.
func isAddress(text string) bool { return address().MatchString(text) && !looksLikeKey(text) }

// isCommand reports whether a text is only the name of a command.
func isCommand(text string) bool { return command().MatchString(text) && !looksLikeKey(text) }

// isReference reports whether a value has the name of an id, and does not look like a known key. Ids are random too.
func isReference(path []string, text string) bool {
	if len(path) == 0 {
		return false
	}
	name := path[len(path)-1]
	return (strings.HasSuffix(name, "Id") || strings.HasSuffix(name, "ID") || name == "id") && !beginsLikeKey(text) && !isInAddress(text)
}

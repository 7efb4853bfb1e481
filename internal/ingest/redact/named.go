package redact

import (
	"bytes"
	"math"
	"slices"
	"strings"
)

// Names of secret values. A short password is a secret too. A key or token has at least 16 characters, because
// identifiers in programs have these names as well.
var (
	passwordWords = []string{"password", "passwd", "passphrase", "pwd", "_pass", "-pass", `"pass`, "'pass"}
	secretWords   = []string{"token", "secret", "api_key", "api-key", "apikey", "access_key", "access-key", "accesskey", "secret_key", "secret-key",
		"secretkey", "secret_key_base", "private_key", "private-key", "privatekey", "encryption_key", "encryptionkey", "signing_key", "signingkey",
		"master_key", "masterkey", "auth_key", "authkey", "account_key", "accountkey"}
)

func namedPassword(t *reader, i int) match { return byName(t, i, passwordWords, 8) }
func namedSecret(t *reader, i int) match   { return byName(t, i, secretWords, 16) }

// byName matches the value of a name that ends with one of the words at i.
func byName(t *reader, i int, words []string, minLen int) (m match) {
	for _, w := range words {
		if commonFold(t.text[i:], w) < len(w) {
			continue
		}
		if one := t.valueOf(i, i+len(w), minLen); one.ok {
			return one
		} else if one.deeper {
			m.deeper = true
		}
	}
	return m
}

// valueOf matches the value of the name whose last word is text[word:end].
func (t *reader) valueOf(word, end, minLen int) (m match) {
	at, quote, option := t.assigned(word, end)
	if at < 0 {
		return match{deeper: end < len(t.text) && escapes[t.text[end]]}
	}
	if at == len(t.text) || otherwise(t.text, word) {
		return m
	}
	to := t.valueEnd(at, quote)
	m = match{from: at, to: to, deeper: to < len(t.text) && escapes[t.text[to]]}
	if value := t.text[at:to]; to-at >= minLen && to-at <= maxValueLen {
		inCode := quote == 0 && (option || !shouted(t.text[word:end]) && !lineOfYAML(t.text, word))
		t.steps += len(value)
		m.ok = !expression(t.text, to, quote) && isSecret(value, minLen > 8 || inCode) && !(inCode && identifier(value))
	}
	return m
}

// assigned returns where the value assigned to a name starts, and the quote around it. option means that only a blank
// separates them, as on a command line. If there is no assignment, at is -1.
func (t *reader) assigned(word, end int) (at int, quote byte, option bool) {
	text := t.text
	at = end
	var closed byte
	if at < len(text) && isQuote(text[at]) {
		closed = text[at]
		at++
	}
	if closed != 0 {
		if at < len(text) && text[at] == ']' { // $x['password'] = ...
			at++
		}
		if v := besideName(text[at:]); v > 0 {
			return opened(text, at+v)
		}
	}
	at = blanks(text, at)
	if n := equals(text[at:]); n > 0 {
		return opened(text, blanks(text, at+n))
	}
	if closed == 0 && at == end && at < len(text) && text[at] == '>' && elementBegins(text, word) {
		return at + 1, 0, false
	}
	if at == end+1 && closed == 0 && optionBegins(text, word) {
		at, quote, _ = opened(text, at)
		return at, quote, true
	}
	return -1, 0, false
}

// opened returns where a value starts, behind its quote if it has one.
func opened(text []byte, at int) (int, byte, bool) {
	if at < len(text) && isQuote(text[at]) {
		return at + 1, text[at], false
	}
	return at, 0, false
}

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }

func blanks(text []byte, at int) int {
	for n := 0; n < 16 && at < len(text) && (text[at] == ' ' || text[at] == '\t'); n++ {
		at++
	}
	return at
}

// equals returns the length of an assignment operator. Comparisons do not count, and neither does the quoted-printable
// form of ESC.
func equals(text []byte) int {
	for _, s := range []string{"==", "=1B"} {
		if hasPrefix(text, s) {
			return 0
		}
	}
	for _, s := range []string{"=3D", "=>", ":=", "?=", "=", ":"} {
		if hasPrefix(text, s) {
			return len(s)
		}
	}
	return 0
}

// besideName returns where the value starts if name and value are separate strings:
// {"name":"DB_PASSWORD","value":"..."}.
func besideName(text []byte) int {
	text = text[:min(len(text), 64)]
	at := 0
	skip := func(set string) {
		for at < len(text) && strings.IndexByte(set, text[at]) >= 0 {
			at++
		}
	}
	skip(", \t\r\n")
	if at == 0 {
		return 0
	}
	skip(`"'`)
	if commonFold(text[at:], "value") < len("value") {
		return 0
	}
	at += len("value")
	skip(`"'`)
	from := at
	skip(": =\t")
	if from == at || at == len(text) || !isQuote(text[at]) {
		return 0
	}
	return at
}

// nameBegins returns the start of the name with a word at i.
func nameBegins(text []byte, i int) int {
	for n := 0; n < 64 && i > 0 && (wordy[text[i-1]] || text[i-1] == '.'); n++ {
		i--
	}
	return i
}

// elementBegins reports whether a name is that of an XML element.
func elementBegins(text []byte, word int) bool {
	from := nameBegins(text, word)
	return from > 0 && text[from-1] == '<'
}

// optionBegins reports whether a name is that of an option, --password, or is set in a Dockerfile, ENV DB_PASSWORD.
func optionBegins(text []byte, word int) bool {
	from := nameBegins(text, word)
	return hasPrefix(text[from:], "--") || bytes.HasSuffix(text[:from], []byte("ENV "))
}

// lineOfYAML reports whether only blanks and a dash precede a name on its line.
func lineOfYAML(text []byte, word int) bool {
	from := nameBegins(text, word)
	for from > 0 && (text[from-1] == ' ' || text[from-1] == '-') {
		from--
	}
	return from == 0 || text[from-1] == '\n'
}

// shouted reports whether a name is in upper case, like environment variables.
func shouted(word []byte) bool { return bytes.Equal(bytes.ToUpper(word), word) }

// otherNames precede the last word in names of other values than secrets: pagination, counts, tokens of a language.
var otherNames = []string{"page", "next", "previous", "continuation", "continue", "sync", "cursor", "pagination", "max", "min", "num", "stop", "eos",
	"bos", "pad", "unk", "mask", "special", "old", "aws_", "aws_secret_", "awssecret"}

// otherwise reports whether a name is that of another value than a secret. AWS names have rules of their own, because
// their values have one shape.
func otherwise(text []byte, word int) bool {
	name := strings.ToLower(string(text[nameBegins(text, word):word]))
	if name == "" && commonFold(text[word:], "pwd") == len("pwd") {
		return shouted(text[word : word+3]) // the shell's PWD
	}
	last := strings.TrimRight(name, "_-.")
	return slices.ContainsFunc(otherNames, func(s string) bool {
		return name == s || last == s || strings.HasSuffix(last, "_"+s) || strings.HasSuffix(last, "-"+s) || len(s) > 3 && strings.HasSuffix(last, s)
	})
}

// maxValueLen bounds the length of a value.
const maxValueLen = 512

var bareValue = shapePart{class: classOf("^\\s\"'`,;&|<>(){}\\[\\]\\\\"), max: math.MaxInt, id: base64url.id + 1}

// valueEnd returns the end of a value: its quote, or the first character that cannot be in it.
func (t *reader) valueEnd(at int, quote byte) int {
	if quote == 0 {
		end := t.runEnd(&bareValue, at)
		for end > at && (t.text[end-1] == '.' || t.text[end-1] == ':') {
			end--
		}
		return end
	}
	limit := min(len(t.text), at+maxValueLen+1)
	end := at
	for end < limit && t.text[end] != quote && t.text[end] != '\n' {
		if t.text[end] == '\\' {
			end++
		}
		end++
	}
	t.steps += end - at
	return min(end, len(t.text))
}

// expression reports whether a program computes the value: it ends at a bracket, or its quote is not closed.
func expression(text []byte, to int, quote byte) bool {
	if quote != 0 {
		return to == len(text) || text[to] != quote
	}
	return to < len(text) && (text[to] == '(' || text[to] == '[' || text[to] == '{' || text[to] == '<' && !hasPrefix(text[to:], "</"))
}

// isSecret reports whether a value is a secret, rather than a word, a path, a placeholder or an expression. With
// strict, a word with a number is not a secret.
func isSecret(value []byte, strict bool) bool {
	if !mixed(value) && !manyKinds(value) || notSecret(string(value)) {
		return false
	}
	if wordlike(value) {
		return !strict && len(segments(value)) == 1
	}
	return true
}

// manyKinds reports whether a password without a digit has upper case, lower case and signs.
func manyKinds(value []byte) bool {
	var upper, lower, sign int
	for _, c := range value {
		switch {
		case 'A' <= c && c <= 'Z':
			upper++
		case 'a' <= c && c <= 'z':
			lower++
		case strings.IndexByte("!#$%^*+=?@~&", c) >= 0:
			sign++
		}
	}
	return upper > 1 && lower > 1 && sign > 0 && varied(value)
}

var notBegin = []string{"/", "./", "../", "~/", "$", "%", "{", "<", "@", "op://", "http:", "https:", "file:", "arn:", "env:", "env.", "vault:", "ref+", "process.",
	"sha256:", "os."}

var notInside = []string{markBegin, "${", "$(", "{{", "}}", "<%", "%>", "...", "***", "xxxx", "your", "example", "changeme", "change_me", "change-me",
	"placeholder", "redacted", "<", "://", "::", "todo", "dummy"}

// notSecret reports whether a value is of another kind, or a placeholder.
func notSecret(value string) bool {
	value = strings.ToLower(value)
	begins := func(s string) bool { return strings.HasPrefix(value, s) }
	inside := func(s string) bool { return strings.Contains(value, s) }
	return strings.ContainsAny(value, " \t\r") || slices.ContainsFunc(notBegin, begins) || slices.ContainsFunc(notInside, inside)
}

// segments returns the runs of letters and digits in a text.
func segments(text []byte) [][]byte {
	return bytes.FieldsFunc(text, func(r rune) bool { return r < 128 && !alnum[byte(r)] })
}

// wordlike reports whether a text consists of natural words, each followed by a number of at most four digits.
func wordlike(text []byte) bool {
	return !slices.ContainsFunc(segments(text), func(s []byte) bool { return !oneWord(s) })
}

func oneWord(s []byte) bool {
	letters := bytes.TrimRight(s, "0123456789")
	if len(s)-len(letters) > 4 && len(letters) > 0 || len(letters) == 0 && len(s) > 4 {
		return false
	}
	humps, run := 0, 0 // humps of camelCase, and length of the last run
	for i, c := range letters {
		switch {
		case '0' <= c && c <= '9':
			return false
		case 'A' <= c && c <= 'Z' && i > 0 && letters[i-1] >= 'a':
			if run < 2 {
				return false
			}
			humps, run = humps+1, 1
		default:
			run++
		}
	}
	return humps <= len(letters)/3
}

// identifier reports whether a text may be a variable name with at most two numbers: testRSA2048Key.
func identifier(text []byte) bool {
	numbers := 0
	words := bytes.FieldsFunc(text, func(r rune) bool { return r == '_' || r == '.' || '0' <= r && r <= '9' })
	for i, c := range text {
		if '0' <= c && c <= '9' && (i == 0 || text[i-1] < '0' || text[i-1] > '9') {
			numbers++
		}
	}
	return numbers <= 2 && !slices.ContainsFunc(words, func(w []byte) bool { return !oneWord(w) })
}

// plain reports whether a text consists of words in lower case, in upper case, or with an initial capital.
func plain(text []byte) bool {
	for _, s := range segments(text) {
		rest := s[1:]
		if !onlyLetters(s) || !bytes.Equal(rest, bytes.ToLower(rest)) && !bytes.Equal(s, bytes.ToUpper(s)) {
			return false
		}
	}
	return true
}

func onlyLetters(s []byte) bool {
	return !slices.ContainsFunc(s, func(c byte) bool { return '0' <= c && c <= '9' })
}

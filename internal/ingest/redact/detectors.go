package redact

import (
	"bytes"
	"encoding/base64"
	"math"
	"slices"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// varied rejects filler in the place of a token: xxxx, 000, a line of dashes.
func varied(secret []byte) bool {
	var seen [256]bool
	n := 0
	for _, c := range secret {
		if !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n >= min(8, len(secret)/2)
}

// mixed accepts text with a digit and a letter. It is for shapes that words could have too.
func mixed(secret []byte) bool {
	digit, letter := false, false
	for _, c := range secret {
		digit = digit || '0' <= c && c <= '9'
		letter = letter || 'a' <= toLower(c) && toLower(c) <= 'z'
	}
	return digit && letter && varied(secret)
}

// basic accepts base64 of a name and a password.
func basic(secret []byte) bool {
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(string(secret), "="))
	if err != nil {
		return false
	}
	for _, c := range text {
		if c < ' ' {
			return false
		}
	}
	return bytes.IndexByte(text, ':') >= 0
}

var keyRun = shapePart{class: classOf("A-Za-z0-9/+"), min: 0, max: math.MaxInt}

// besideAccessKey finds an AWS secret key behind the id of an access key.
func besideAccessKey(t *reader, i int) (m match) {
	const size, far, key = 20, 100, 40
	text := t.text
	if !bytes.Equal(bytes.ToUpper(text[i:i+4]), text[i:i+4]) || i > 0 && alnum[text[i-1]] && !t.broken(i) && !escapedAt(text, i) {
		return m
	}
	near := text[:min(len(text), i+size+far+key+1)]
	part := reader{text: near}
	defer func() { t.steps += part.steps }()
	for at := keyRun.run(&part, i); at < len(near); {
		end := keyRun.run(&part, at)
		if end-at == key && threeKinds(near[at:end]) && !hasPrefix(text[end:], markBegin) && !marked(text[:at]) {
			return match{from: at, to: end, ok: true}
		}
		at = end + 1
	}
	m.deeper = slices.ContainsFunc(near[i:], func(c byte) bool { return escapes[c] })
	return m
}

// threeKinds reports whether a secret has upper case, lower case and digits, unlike a hash in hex or a path.
func threeKinds(s []byte) bool {
	return !bytes.Equal(bytes.ToLower(s), s) && !bytes.Equal(bytes.ToUpper(s), s) && mixed(s)
}

var (
	base64url  = shapePart{class: wordy, min: 0, max: math.MaxInt, id: 1}
	base64Text = shapePart{class: classOf(`A-Za-z0-9+/=\s`), min: 0, max: math.MaxInt}
)

// jsonWebToken matches header, claims and signature, or the five parts of an encrypted token.
func jsonWebToken(t *reader, i int) (m match) {
	text := t.text
	if string(text[i:i+3]) != "eyJ" {
		return m
	}
	if i > 0 && !t.broken(i) && !escapeEnds(text[:i]) && (wordy[text[i-1]] || text[i-1] == ']' && marked(text[:i])) {
		return match{deeper: escapedAt(text, i)}
	}
	at := base64url.run(t, i)
	header := text[i:at]
	if t.broken(i) && len(header) > 1024 {
		return m // the next word may begin a token too, which would be read repeatedly
	}
	parts, short := 1, false
	for ; parts < 5 && at < len(text) && text[at] == '.'; parts++ {
		end := base64url.run(t, at+1)
		short = short || end-at < 2 && parts < 2
		at = end
	}
	m = match{from: i, to: at, deeper: at < len(text) && escapes[text[at]]}
	t.steps += at - i
	m.ok = parts >= 3 && !short && tokenHeader(header) && !hasPrefix(text[at:], markBegin)
	return m
}

func tokenHeader(b []byte) bool {
	text, err := base64.RawURLEncoding.DecodeString(string(b))
	if err != nil {
		return false
	}
	object, err := rawjson.Object(text)
	_, has := object.Get("alg")
	return err == nil && has
}

// privateKey matches a block from its BEGIN to its END.
func privateKey(t *reader, i int) (m match) {
	const begin, dashes = "-----BEGIN ", "-----"
	text := t.text
	label := text[i:min(len(text), i+96)]
	if !hasPrefix(label, begin) {
		return m
	}
	size := bytes.Index(label[len(begin):], []byte(dashes))
	if size < 0 {
		return match{deeper: slices.ContainsFunc(label, func(c byte) bool { return escapes[c] })}
	}
	label = label[len(begin) : len(begin)+size]
	if !bytes.HasSuffix(label, []byte("PRIVATE KEY")) && !bytes.HasSuffix(label, []byte("PRIVATE KEY BLOCK")) {
		return m
	}
	body := i + len(begin) + size + len(dashes)
	until := len(text)
	if n := bytes.Index(text[body:], []byte(dashes+"BEGIN ")); n >= 0 {
		until = body + n
	}
	last := "-----END " + string(label) + dashes
	end := bytes.Index(text[body:until], []byte(last))
	m.deeper = slices.ContainsFunc(text[body:min(len(text), body+4)], func(c byte) bool { return escapes[c] })
	if end >= 0 {
		m.from, m.to, m.ok = i, body+end+len(last), keyBytes(text[body:body+end])
		return m
	}
	m.from, m.to = i, base64Text.run(t, body)
	m.ok = keyBytes(text[body:m.to])
	return m
}

// keyBytes reports whether a body has enough base64 for the shortest of keys. A program that only contains the marker
// lines has not.
func keyBytes(body []byte) bool {
	n := 0
	for _, c := range body {
		if alnum[c] || c == '+' || c == '/' {
			n++
		} else if c == '(' || c == ')' || c == ';' {
			return false // source code
		}
	}
	return n >= 40
}

var (
	urlUser = shapePart{class: classOf(`^\s/@:"'<>\\\[\](){}$,;|\x60`), min: 0, max: 128}
	urlPass = shapePart{class: classOf(`^\s/@:"'<>\\\[\](){}$,;|\x60`), min: 3, max: 256}
)

// urlPassword matches the password between user and host.
func urlPassword(t *reader, i int) (m match) {
	text := t.text
	at := urlUser.run(t, i+len("://"))
	if at == len(text) || text[at] != ':' {
		return match{deeper: at < len(text) && escapes[text[at]]}
	}
	end := urlPass.run(t, at+1)
	if end < 0 || end == len(text) || text[end] != '@' {
		return match{deeper: end >= 0 && end < len(text) && escapes[text[end]]}
	}
	m = match{from: at + 1, to: end}
	m.ok = !placeholder(string(text[at+1 : end]))
	return m
}

// placeholder reports whether a password is a placeholder, in documentation of a URL or in a program that builds one.
func placeholder(s string) bool {
	switch strings.ToLower(strings.Trim(s, "*.-_")) {
	case "", "password", "passwd", "pass", "pw", "pwd", "secret", "token", "user", "username", "xxx", "xxxx", "xxxxx", "redacted", "your_password", "your-password":
		return true
	}
	return strings.ContainsAny(s, "*") || strings.HasPrefix(s, "%") && len(s) == 2
}

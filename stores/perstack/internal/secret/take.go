package secret

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// mark is the prefix of placeholders; a number from 1 follows.
const mark = "tally:secret:"

// A Value is a secret of a setting. It prints as its path, never as the value.
type Value struct {
	Path string // JSON pointer; "" after Unpack
	raw  events.Raw
}

// Format prints the path, whatever the verb.
func (v Value) Format(f fmt.State, _ rune) { fmt.Fprint(f, "secret at ", v.Path) }

// Take returns a run setting with a placeholder for each secret, the secrets in the order of their placeholders, and
// JSON pointers to suspects: other values and names that look like a key, and stay. In a pointer such a name is a *.
// All other bytes are unchanged. A string that looks like a placeholder is a secret too, so that Put restores it.
//
// If the setting is not JSON, the error is a *rawjson.SyntaxError. It may contain secrets anywhere, so seal it whole.
func Take(raw events.Raw) (without events.Raw, values []Value, suspects []string, err error) {
	if err := rawjson.Check(raw); err != nil {
		return nil, nil, nil, err
	}
	t := taker{out: replacer{from: raw}}
	w := &walker{b: raw}
	w.name = func() {
		if looksLikeKey(w.path[len(w.path)-1]) {
			t.suspects = append(t.suspects, pointer(w.path))
		}
	}
	w.literal = func(r rule, from, to int) { t.literal(r, w.path, from, to) }
	w.value(look)
	return t.out.done(), t.values, slices.Compact(t.suspects), nil
}

// taker is a call of Take in progress.
type taker struct {
	out      replacer
	values   []Value
	suspects []string
}

// literal decides about a string or a number. true, false and null always stay.
func (t *taker) literal(r rule, path []string, from, to int) {
	token := t.out.from[from:to]
	taken := r == all && (token[0] == '-' || '0' <= token[0] && token[0] <= '9')
	if token[0] == '"' {
		text := textOf(token)
		taken = isSecret(r, text)
		if r == look && !taken && looksLikeKey(text) && !isReference(path, text) {
			t.suspects = append(t.suspects, pointer(path))
		}
	}
	if taken {
		t.values = append(t.values, Value{pointer(path), slices.Clone(token)})
		t.out.replace(from, to, placeholder(len(t.values)))
	}
}

// isSecret reports whether a string is taken.
func isSecret(r rule, text string) bool {
	if strings.HasPrefix(text, mark) {
		return true
	}
	if text == "" {
		return false
	}
	switch r {
	case all, config:
		return true
	case plain:
		return looksLikeKey(text)
	case url:
		return !isAddress(text)
	case line, word:
		return !isCommand(text)
	}
	return false
}

// placeholder returns the JSON string for the n-th secret.
func placeholder(n int) []byte { return []byte(`"` + mark + strconv.Itoa(n) + `"`) }

// Put restores the secrets in a setting from Take, byte for byte. If a secret lacks its placeholder or a placeholder
// its secret, the error is an *events.InvalidError that names the position.
func Put(raw events.Raw, values []Value) (events.Raw, error) {
	if err := rawjson.Check(raw); err != nil {
		return nil, err
	}
	p := putter{out: replacer{from: raw}, values: values, used: make([]bool, len(values))}
	w := &walker{b: raw, name: func() {}}
	w.literal = func(_ rule, from, to int) { p.literal(w.path, from, to) }
	w.value(look)
	if p.err != nil {
		return nil, p.err
	}
	if i := slices.Index(p.used, false); i >= 0 {
		return nil, &events.InvalidError{Field: "secrets", Reason: fmt.Sprintf("got %d secrets, but number %d has no placeholder", len(values), i+1)}
	}
	return p.out.done(), nil
}

// putter is a call of Put in progress.
type putter struct {
	out    replacer
	values []Value
	used   []bool // secrets that were restored
	err    error  // the first
}

func (p *putter) literal(path []string, from, to int) {
	digits, ok := bytes.CutPrefix(p.out.from[from:to], []byte(`"`+mark))
	if !ok || p.err != nil {
		return
	}
	n, err := strconv.Atoi(strings.TrimSuffix(string(digits), `"`))
	if err != nil || n < 1 || n > len(p.values) || p.used[n-1] || !bytes.Equal(p.out.from[from:to], placeholder(n)) {
		p.err = &events.InvalidError{Field: pointer(path), Reason: fmt.Sprintf("a placeholder for none of the %d secrets", len(p.values))}
		return
	}
	p.used[n-1] = true
	p.out.replace(from, to, p.values[n-1].raw)
}

// Pack returns secrets as a JSON array for sealing. It does not contain their paths.
func Pack(values []Value) []byte {
	list := make([]events.Raw, len(values))
	for i, v := range values {
		list[i] = v.raw
	}
	return rawjson.AppendArray(nil, list)
}

// Unpack parses the result of Pack. Its error never quotes a value.
func Unpack(packed []byte) ([]Value, error) {
	list, err := rawjson.Array(packed)
	if err != nil {
		return nil, &events.InvalidError{Field: "secrets", Reason: "want a JSON array of strings and numbers"}
	}
	values := make([]Value, len(list))
	for i, raw := range list {
		if raw[0] == '{' || raw[0] == '[' {
			return nil, &events.InvalidError{Field: "secrets", Reason: fmt.Sprintf("element %d is neither a string nor a number", i+1)}
		}
		values[i].raw = raw
	}
	return values, nil
}

// replacer copies bytes and replaces some of them.
type replacer struct {
	from, to []byte
	at       int // copied up to here
}

func (r *replacer) replace(from, to int, by []byte) {
	r.to = append(append(r.to, r.from[r.at:from]...), by...)
	r.at = to
}

func (r *replacer) done() []byte { return append(r.to, r.from[r.at:]...) }

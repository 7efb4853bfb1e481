package rawjson

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestObject(t *testing.T) {
	b := []byte(` {"b" : [ 1, 2 ] , "\u0061":"x", "A": {"k":1,"k":2},"n":null } `)
	got, err := Object(b)
	want := Members{
		{"b", json.RawMessage(`[ 1, 2 ]`)},
		{"a", json.RawMessage(`"x"`)},
		{"A", json.RawMessage(`{"k":1,"k":2}`)},
		{"n", json.RawMessage(`null`)},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Object: %v\n%s", err, diff)
	}
	if &got[0].Value[0] != &b[8] {
		t.Error("values do not alias the input")
	}
	_ = append(got[0].Value, 'X')
	if b[16] != ' ' {
		t.Error("appending to a value wrote into the input")
	}
	if v, ok := got.Get("a"); !ok || string(v) != `"x"` {
		t.Errorf("Get(a) = %s, %v", v, ok)
	}
	if _, ok := got.Get("B"); ok {
		t.Error("Get(B) found b")
	}
}

func TestMembers(t *testing.T) {
	m, err := Object([]byte(`{"t":"a\nb","e":"","l":"\ud800","n":null,"i":1,"o":{"k":"v"},"none":{},"d":{"k":1,"k":2},"a":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range m {
		if got, want := m.Text(member.Name), map[string]string{"t": "a\nb"}[member.Name]; got != want {
			t.Errorf("Text(%s) = %q, want %q", member.Name, got, want)
		}
		want := map[string]Members{"o": {{"k", json.RawMessage(`"v"`)}}, "none": {}}[member.Name]
		if diff := cmp.Diff(want, m.Object(member.Name)); diff != "" {
			t.Errorf("Object(%s):\n%s", member.Name, diff)
		}
	}
	if m.Text("x") != "" || m.Object("x") != nil || Members(nil).Text("t") != "" || Members(nil).Object("o") != nil {
		t.Error("Get found a missing member")
	}
}

func TestObjectRefuses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"a":1,"\u0061":2}`, "a: duplicate name"},
		{`[]`, "want an object, have an array"},
		{`null`, "want an object, have null"},
		{`{"\ud800":1}`, `name "\ud800" has a lone surrogate`},
	} {
		_, err := Object([]byte(c.in))
		mustField(t, err, c.want)
	}
	for _, c := range []struct{ in, want string }{
		{`{"a":1,"a":2,}`, "offset 13: want a name"}, // no JSON comes first
		{`{"a":[1}`, "offset 7: want ',' or ']'"},
		{`{"a":1} x`, "offset 8: more after the value"},
		{`{"a" 1}`, "offset 5: want ':'"},
		{strings.Repeat(`{"a":`, 20000), "offset 5000: nested deeper than 1000"},
		{``, "offset 0: unexpected end"},
		{`?`, "offset 0: want a value"},
	} {
		_, err := Object([]byte(c.in))
		mustSyntax(t, err, c.want)
	}
}

func TestObjectFindsDuplicatesAmongMany(t *testing.T) {
	for _, n := range []int{1, 15, 16, 17, 40} {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":%d,`, i, i)
		}
		if m, err := Object([]byte("{" + b.String() + `"x":0}`)); err != nil || len(m) != n+1 {
			t.Errorf("%d names: %d, %v", n, len(m), err)
		}
		for _, i := range []int{0, n - 1} {
			_, err := Object(fmt.Appendf(nil, `{%s"k%d":0}`, b.String(), i))
			mustField(t, err, fmt.Sprintf("k%d: duplicate name", i))
		}
	}
}

func TestArray(t *testing.T) {
	got, err := Array([]byte(" [ {\"a\": 1} , 2,\"x\" ] "))
	want := []json.RawMessage{json.RawMessage(`{"a": 1}`), json.RawMessage(`2`), json.RawMessage(`"x"`)}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Array: %v\n%s", err, diff)
	}
	if got, err := Array([]byte("[]")); err != nil || got == nil || len(got) != 0 {
		t.Errorf("Array([]) = %v, %v", got, err)
	}
	_, err = Array([]byte(`{}`))
	mustField(t, err, "want an array, have an object")
	for in, want := range map[string]string{
		"[1,]": "offset 3: want a value", "[1": "offset 2: unexpected end", "[]]": "offset 2: more after the value",
	} {
		_, err = Array([]byte(in))
		mustSyntax(t, err, want)
	}
}

func TestString(t *testing.T) {
	for in, want := range map[string]string{
		`""`: "", ` "a" `: "a", `"\u00e9\/\b\f\n\r\t\"\\"`: "é/\b\f\n\r\t\"\\", `"\ud83d\ude00"`: "😀", `"\u0000"`: "\x00", `"\uffff\ufffd"`: "\uffff\ufffd",
	} {
		if got, err := String([]byte(in)); err != nil || got != want {
			t.Errorf("String(%s) = %q, %v", in, got, err)
		}
	}
	for _, in := range []string{`"\ud800"`, `"\udc00"`, `"\ud800\ud800"`, `"\ud800x"`, `"\ud800\n"`, `"\udc00\ud800"`} {
		_, err := String([]byte(in))
		mustField(t, err, "lone surrogate in a string")
	}
	_, err := String([]byte(`1`))
	mustField(t, err, "want a string, have a number")
	_, err = String([]byte(`"\ud800`))
	mustSyntax(t, err, "offset 7: unterminated string")
}

func TestAppendString(t *testing.T) {
	for in, want := range map[string]string{
		"":                       `""`,
		"plain":                  `"plain"`,
		"\"\\\b\t\n\f\r":         `"\"\\\b\t\n\f\r"`,
		"\x00\x1f\x7f":           "\"\\u0000\\u001f\x7f\"",
		"<&>/' \u2028é😀":         "\"<&>/' \u2028é😀\"",
		"a\xffb\xed\xa0\x80\xc3": `"a\ufffdb\ufffd\ufffd\ufffd\ufffd"`,
		"\ufffd":                 "\"\ufffd\"",
	} {
		if got := string(AppendString([]byte("x"), in)); got != "x"+want {
			t.Errorf("AppendString(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestStringRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "valid") {
			in = rapid.String().Draw(t, "string")
		}
		got, err := String(AppendString(nil, in))
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.ToValidUTF8(in, "\ufffd"); utf8.ValidString(in) && got != want {
			t.Fatalf("%q became %q", in, got)
		}
		var std string
		if err := json.Unmarshal(AppendString(nil, in), &std); err != nil || std != got {
			t.Fatalf("encoding/json reads %q (%v), want %q", std, err, got)
		}
	})
}

// AppendArray copies elements verbatim, with their spaces and duplicate names.
func TestAppendArray(t *testing.T) {
	for want, elems := range map[string][]json.RawMessage{
		`x[]`:                         nil,
		`x[1.0]`:                      {json.RawMessage(`1.0`)},
		`x[{"a": 1, "a":2},"\ud800"]`: {json.RawMessage(`{"a": 1, "a":2}`), json.RawMessage(`"\ud800"`)},
	} {
		if have := string(AppendArray([]byte("x"), elems)); have != want {
			t.Errorf("got %s, want %s", have, want)
		}
	}
}

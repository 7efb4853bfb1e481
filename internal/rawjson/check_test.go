package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func mustSyntax(t *testing.T, err error, want string) {
	t.Helper()
	if e, ok := errors.AsType[*SyntaxError](err); !ok || e.Error() != want {
		t.Errorf("error %v (%T), want syntax error %q", err, err, want)
	}
}

func mustField(t *testing.T, err error, want string) {
	t.Helper()
	if e, ok := errors.AsType[*FieldError](err); !ok || e.Error() != want {
		t.Errorf("error %v (%T), want field error %q", err, err, want)
	}
}

func TestCheckAccepts(t *testing.T) {
	for _, in := range []string{
		`null`, ` true `, "\t\r\n false\n", `0`, `-0`, `-0.0e-0`, `1E+9`, `123456789012345678901234567890`, `1e99999`,
		`""`, `"\u0000"`, `"\ud800"`, `"\uDE00\ud83d"`, `"\/\"\\\b\f\n\r\t"`, "\"\u2028\ufeff\x7f\"", `"é😀 and eight more plain"`,
		`[]`, `{}`, `[ ]`, `{ }`, `[1 , [ ] , {"a" : {}}]`, `{"a":1,"a":2}`, `{"a":[{"b":[1,"x"]},null],"c":true}`,
		nested(MaxDepth), strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth),
	} {
		if err := Check([]byte(in)); err != nil {
			t.Errorf("Check(%.60q): %v", in, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", "offset 0: unexpected end"},
		{"  ", "offset 2: unexpected end"},
		{"\xef\xbb\xbf{}", "offset 0: byte order mark"},
		{"nul", "offset 0: want a value"},
		{"1 2", "offset 2: more after the value"},
		{"01", "offset 1: more after the value"},
		{"[-]", "offset 1: invalid number"},
		{"[1.]", "offset 1: invalid number"},
		{"1e+", "offset 0: invalid number"},
		{".5", "offset 0: want a value"},
		{"NaN", "offset 0: want a value"},
		{`"abc`, "offset 4: unterminated string"},
		{`"abc\`, "offset 5: unterminated string"},
		{`"ab\x"`, "offset 3: invalid escape"},
		{`"ab\u12g4"`, "offset 3: invalid escape"},
		{`"ab\u12`, "offset 3: invalid escape"},
		{"\"a\nb\"", "offset 2: control character in a string"},
		{"\"abcdefghijk\x01\"", "offset 12: control character in a string"},
		{"\"a\xffb\"", "offset 2: invalid UTF-8"},
		{"\"\xed\xa0\x80\"", "offset 1: invalid UTF-8"},
		{"[1,]", "offset 3: want a value"},
		{"[1 2]", "offset 3: want ',' or ']'"},
		{"[1}", "offset 2: want ',' or ']'"},
		{"[", "offset 1: unexpected end"},
		{"{", "offset 1: unexpected end"},
		{"{1:2}", "offset 1: want a name"},
		{`{"a"}`, "offset 4: want ':'"},
		{`{"a"`, "offset 4: unexpected end"},
		{`{"a":`, "offset 5: unexpected end"},
		{`{"a":1,}`, "offset 7: want a name"},
		{`{"a":1 "b":2}`, "offset 7: want ',' or '}'"},
		{`[{"a":[1]}`, "offset 10: unexpected end"},
		{"\u00a01", "offset 0: want a value"},
		{nested(MaxDepth + 1), "offset 1000: nested deeper than 1000"},
		{strings.Repeat("[", 20000), "offset 1000: nested deeper than 1000"},
	} {
		mustSyntax(t, Check([]byte(c.in)), c.want)
	}
}

// checkAgrees compares Check with encoding/json, except where the package
// promises to be stricter.
func checkAgrees(t interface {
	Helper()
	Fatalf(string, ...any)
}, b []byte,
) {
	t.Helper()
	err := Check(b)
	stricter := !utf8.Valid(b)
	if e, ok := errors.AsType[*SyntaxError](err); ok {
		stricter = stricter || e.Reason == tooDeep
		if e.Offset < 0 || e.Offset > int64(len(b)) {
			t.Fatalf("the error's offset is %d in %d bytes", e.Offset, len(b))
		}
	}
	switch want := json.Valid(b); {
	case err == nil && (!want || !utf8.Valid(b)):
		t.Fatalf("Check accepts %q", b)
	case err != nil && want && !stricter:
		t.Fatalf("Check(%q): %v", b, err)
	}
}

// genJSON draws valid JSON with white space, odd spellings and duplicates.
func genJSON(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		sp := func() string { return rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n  "}).Draw(t, "space") }
		str := func() string {
			return rapid.SampledFrom([]string{`""`, `"a"`, `"\u0041\n"`, `"\ud800"`, `"<&>"`, "\"\u2028é\"", `"a \" , : [ {\\"`, `"plain text of some length"`}).Draw(t, "string")
		}
		kind := rapid.IntRange(0, 9).Draw(t, "kind")
		if depth == 0 {
			kind %= 7
		}
		switch {
		case kind < 3:
			return str()
		case kind < 7:
			return rapid.SampledFrom([]string{"null", "true", "false", "0", "-0", "1.50", "1E+400", "123456789012345678901"}).Draw(t, "scalar")
		}
		var b strings.Builder
		object := kind == 9
		open, end := "[", "]"
		if object {
			open, end = "{", "}"
		}
		b.WriteString(open + sp())
		for n := range rapid.IntRange(0, 3).Draw(t, "n") {
			if n > 0 {
				b.WriteString(sp() + "," + sp())
			}
			if object {
				b.WriteString(str() + sp() + ":" + sp())
			}
			b.WriteString(genJSON(depth-1).Draw(t, "element") + sp())
		}
		return b.String() + end
	})
}

func TestCheckAgreesWithEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(genJSON(4).Draw(t, "json"))
		if err := Check(b); err != nil {
			t.Fatalf("Check(%q): %v", b, err)
		}
		checkAgrees(t, b)
		for range 5 { // and after some damage
			at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
			with := rapid.SampledFrom([]string{"", "{", "}", "[", "]", ",", ":", `"`, `\`, "1", "-", ".", "e", " ", "u", "\x00", "\xff", "é"}).Draw(t, "with")
			size := rapid.IntRange(0, 1).Draw(t, "size")
			checkAgrees(t, bytes.Join([][]byte{b[:at], []byte(with), b[at+size:]}, nil))
		}
	})
}

func TestPlain(t *testing.T) {
	for c := range 256 {
		special := c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\'
		for n := range 20 {
			b := bytes.Repeat([]byte{'~'}, 20)
			b[n] = byte(c)
			want := 20
			if special {
				want = n
			}
			if got := plain(b, 0); got != want {
				t.Fatalf("plain with %#x at %d: got %d", c, n, got)
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{``, `{"a":[1,-2.5e3,"\u00e9\ud800",null,true],"a":{}}`, "\xef\xbb\xbf1", "\"\xff\"", nested(30), `[1,]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkAgrees(t, b)
		compact, indented := AppendCompact(nil, b), AppendIndent(nil, b, "  ")
		Equal(b, compact) // must not panic, whatever b is
		if Check(b) != nil {
			if _, err := Object(b); err == nil {
				t.Fatalf("Object accepted %q", b)
			}
			return
		}
		layoutAgrees(t, b, compact, indented)
		if m, err := Object(b); err == nil {
			again, err := Marshal(m)
			if err != nil {
				t.Fatalf("Marshal(Object(%q)): %v", b, err)
			}
			if m2, err := Object(again); err != nil || len(m2) != len(m) {
				t.Fatalf("Object(%q) = %v, %v", again, m2, err)
			}
		}
		if elems, err := Array(b); err == nil {
			if again, err := Marshal(elems); err != nil || !Equal(again, b) {
				t.Fatalf("Marshal(Array(%q)) = %q, %v", b, again, err)
			}
		}
		var want string
		if s, err := String(b); err == nil && (json.Unmarshal(b, &want) != nil || s != want) {
			t.Fatalf("String(%q) = %q, want %q", b, s, want)
		}
	})
}

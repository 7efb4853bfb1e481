package rawjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// layoutAgrees compares both layouts of a valid b with encoding/json's.
func layoutAgrees(t interface {
	Helper()
	Fatalf(string, ...any)
}, b, compact, indented []byte,
) {
	t.Helper()
	var want bytes.Buffer
	if err := json.Compact(&want, b); err != nil || !bytes.Equal(compact, want.Bytes()) {
		t.Fatalf("AppendCompact(%q) = %q, want %q (%v)", b, compact, want.Bytes(), err)
	}
	want.Reset()
	if err := json.Indent(&want, bytes.TrimSpace(b), "", "  "); err != nil || !bytes.Equal(indented, want.Bytes()) {
		t.Fatalf("AppendIndent(%q) = %q, want %q (%v)", b, indented, want.Bytes(), err)
	}
	if back := AppendCompact(nil, indented); !bytes.Equal(back, compact) {
		t.Fatalf("AppendCompact(%q) = %q, want %q", indented, back, compact)
	}
	if !Equal(b, compact) || !Equal(indented, b) {
		t.Fatalf("%q is not equal to itself in another layout", b)
	}
}

func TestLayoutLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(genJSON(4).Draw(t, "json"))
		layoutAgrees(t, b, AppendCompact(nil, b), AppendIndent(nil, b, "  "))
		c := []byte(genJSON(2).Draw(t, "other"))
		if got, want := Equal(b, c), bytes.Equal(AppendCompact(nil, b), AppendCompact(nil, c)); got != want {
			t.Fatalf("Equal(%q, %q) = %v", b, c, got)
		}
	})
}

// CutIndentAt accepts exactly the output of AppendIndentAt.
func TestCutIndentLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := []byte(genJSON(4).Draw(t, "json"))
		indent := rapid.SampledFrom([]string{" ", "  ", "\t", "    "}).Draw(t, "indent")
		depth := rapid.IntRange(0, 12).Draw(t, "depth")
		want := AppendIndentAt(nil, src, indent, depth)
		tail := rapid.SampledFrom([]string{"", ",", "\n]", strings.Repeat("x", 20)}).Draw(t, "tail")
		if rest, ok := CutIndentAt(append(want, tail...), src, indent, depth); !ok || string(rest) != tail {
			t.Fatalf("CutIndentAt(%q, %q, %q, %d) = %q, %v", want, src, indent, depth, rest, ok)
		}
		other := append(bytes.Clone(want), tail...)
		at := rapid.IntRange(0, len(want)-1).Draw(t, "at")
		other[at] ^= rapid.ByteRange(1, 255).Draw(t, "change")
		if _, ok := CutIndentAt(other, src, indent, depth); ok {
			t.Fatalf("CutIndentAt accepted %q as %q", other, want)
		}
		if _, ok := CutIndentAt(want[:at], src, indent, depth); ok {
			t.Fatalf("CutIndentAt accepted %q as %q", want[:at], want)
		}
	})
}

// Strings are compared eight bytes at a time: quotes and escapes at each position in a word.
func TestCutIndentStrings(t *testing.T) {
	for n := range 40 {
		for _, odd := range []string{``, `\"`, `\\`, `\n`, `\u00e9`, `é`, `\\\"`, "\x7f"} {
			for _, end := range []string{"", strings.Repeat("z", 20)} {
				src := []byte(`["` + strings.Repeat("a", n) + odd + end + `","b"]`)
				want := AppendIndentAt(nil, src, "  ", 1)
				if rest, ok := CutIndentAt(want, src, "  ", 1); !ok || len(rest) > 0 {
					t.Fatalf("CutIndentAt did not find %s in %q", src, want)
				}
				for i := range want {
					other := bytes.Clone(want)
					other[i] ^= 1
					if _, ok := CutIndentAt(other, src, "  ", 1); ok {
						t.Fatalf("CutIndentAt accepted %q as %s", other, src)
					}
				}
			}
		}
	}
}

func TestAppendIndent(t *testing.T) {
	const in = ` {"a" : [ ] ,"b":{ }, "c":[1,{"d":"x , y: {"}]}`
	for _, c := range []struct{ indent, want string }{
		{"", `{"a":[],"b":{},"c":[1,{"d":"x , y: {"}]}`},
		{"\t", "{\n\t\"a\": [],\n\t\"b\": {},\n\t\"c\": [\n\t\t1,\n\t\t{\n\t\t\t\"d\": \"x , y: {\"\n\t\t}\n\t]\n}"},
	} {
		if got := string(AppendIndent([]byte("> "), []byte(in), c.indent)); got != "> "+c.want {
			t.Errorf("indent %q:\n%s\nwant\n%s", c.indent, got, c.want)
		}
	}
}

func TestEqual(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1}`, ` { "a" : 1 } `, true},
		{`{"a":1}`, `{"a":1.0}`, false},
		{`"\u0041"`, `"A"`, false},
		{`"a b"`, `"ab"`, false},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, false},
		{`[1,2]`, `[1,2,3]`, false},
		{``, ` `, true},
	} {
		if got := Equal([]byte(c.a), []byte(c.b)); got != c.want {
			t.Errorf("Equal(%s, %s) = %v", c.a, c.b, got)
		}
	}
}

func TestLayoutOfGarbageDoesNotPanic(t *testing.T) {
	for _, in := range []string{"", `"`, `"\`, `"abc\"`, "]]]}", "}{", `{"a`, "[", "{", `,:,:`, "\xff\x00", strings.Repeat("[", 20000)} {
		AppendCompact(nil, []byte(in))
		AppendIndent(nil, []byte(in), " ")
		for _, other := range []string{in, `"`, `"\`, "["} {
			Equal([]byte(in), []byte(other))
		}
	}
}

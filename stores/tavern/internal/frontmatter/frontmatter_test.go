package frontmatter_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/stores/tavern/internal/frontmatter"
)

// The texts and their meanings are those of the original's own reader.
func TestParse(t *testing.T) {
	fields := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	for name, c := range map[string]struct {
		text string
		want frontmatter.Document
	}{
		"title pulled out":       {"---\ntitle: Kettle\nstate: idle\n---\n\nBody\n", frontmatter.Document{Title: "Kettle", Titled: true, Fields: fields("state", "idle"), Body: "Body"}},
		"first colon":            {"---\nurl: http://a:1\n---\n", frontmatter.Document{Fields: fields("url", "http://a:1")}},
		"quotes":                 {"---\na: \"x: \\\"y\\\"\"\nb: 'z'\nc: \"\n---\n", frontmatter.Document{Fields: fields("a", `x: "y"`, "b", "'z'", "c", "")}},
		"no colon, comments":     {"---\nwords\n# note: this\n\n---\nB", frontmatter.Document{Fields: fields("# note", "this"), Body: "B"}},
		"last of a key":          {"---\na: 1\na: 2\n---\n", frontmatter.Document{Fields: fields("a", "2")}},
		"white space":            {"---\n \ta\u00a0:  b c\t\n---\n \n B \n\n", frontmatter.Document{Fields: fields("a", "b c"), Body: "B"}},
		"not the first line":     {"\n---\na: 1\n---\n", frontmatter.Document{Body: "\n---\na: 1\n---\n"}},
		"no front matter":        {"# A\n\nb\n", frontmatter.Document{Body: "# A\n\nb\n"}},
		"a longer first line":    {"----\na: 1\n---\n", frontmatter.Document{Body: "----\na: 1\n---\n"}},
		"never ends":             {"---\na: 1\n", frontmatter.Document{Body: "---\na: 1\n"}},
		"nothing but the fence":  {"---", frontmatter.Document{Body: "---"}},
		"empty":                  {"", frontmatter.Document{}},
		"empty block":            {"---\n---", frontmatter.Document{Fields: fields()}},
		"CRLF":                   {"---\r\na: 1\r\n---\r\nB\r\n", frontmatter.Document{Fields: fields("a", "1"), Body: "B"}},
		"byte order mark":        {"\ufeff---\na: 1\n---\n", frontmatter.Document{Fields: fields("a", "1")}},
		"NUL, not UTF-8":         {"---\na\x00: \xff\xed\xa0\x80\n---\n\xfe", frontmatter.Document{Fields: fields("a\x00", "\xff\xed\xa0\x80"), Body: "\xfe"}},
		"a fence in the body":    {"---\na: 1\n---\nB\n---\nC", frontmatter.Document{Fields: fields("a", "1"), Body: "B\n---\nC"}},
		"an indented fence":      {"---\na: 1\n ---\nb: 2\n---\n", frontmatter.Document{Fields: fields("a", "1", "b", "2")}},
		"an empty title is one":  {"---\ntitle:\n---\n", frontmatter.Document{Titled: true, Fields: fields()}},
		"an empty key is one":    {"---\n: x\n---\n", frontmatter.Document{Fields: fields("", "x")}},
		"backslashes as written": {"---\na: \"C:\\new\"\n---\n", frontmatter.Document{Fields: fields("a", `C:\new`)}},
	} {
		t.Run("D-09 "+name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, frontmatter.Parse([]byte(c.text))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRender(t *testing.T) {
	for name, c := range map[string]struct {
		doc  frontmatter.Document
		want string
	}{
		"D-10 sorted, title among them": {frontmatter.Document{Title: "K", Titled: true, Fields: map[string]string{"z": "1", "a": "2"}, Body: " B\n"}, "---\na: 2\ntitle: K\nz: 1\n---\n\n B\n"},
		"D-10 quoted":                   {frontmatter.Document{Fields: map[string]string{"a": `x: "y"`, "b": "#1", "c": `say "z"`}}, "---\na: \"x: \\\"y\\\"\"\nb: \"#1\"\nc: say \"z\"\n---\n\n"},
		"D-10 no keys":                  {frontmatter.Document{Body: "B"}, "B"},
		"what would be lost is quoted":  {frontmatter.Document{Fields: map[string]string{"a": `"q"`, "b": " x ", "c": `"`, "d": `\`}}, "---\na: \"\\\"q\\\"\"\nb: \" x \"\nc: \"\\\"\"\nd: \\\n---\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			have, err := frontmatter.Render(c.doc)
			if err != nil || string(have) != c.want {
				t.Errorf("got %q, error %v", have, err)
			}
		})
	}
	for _, bad := range []map[string]string{{"": "x"}, {" a": "x"}, {"a:b": "x"}, {"a\nb": "x"}, {"a": "x\ny"}, {"a": "x\ry"}} {
		_, err := frontmatter.Render(frontmatter.Document{Fields: bad})
		if e, ok := errors.AsType[*frontmatter.Error](err); !ok || e.Reason == "" {
			t.Errorf("%q: got the error %v", bad, err)
		}
	}
}

func TestSet(t *testing.T) {
	for name, c := range map[string]struct{ text, key, value, want string }{
		"in its place":          {"---\n# mine\nb:  old \t\na: 1\n---\nB", "b", "new", "---\n# mine\nb:  new \t\na: 1\n---\nB"},
		"said already":          {"---\na: \"x\"\n---\n", "a", "x", "---\na: \"x\"\n---\n"},
		"the one that counts":   {"---\na: 1\na: 2\n---\n", "a", "3", "---\na: 1\na: 3\n---\n"},
		"an empty one":          {"---\na:\n---\n", "a", "x", "---\na: x\n---\n"},
		"a new one comes last":  {"---\nb: 1\n\n---\n\nB", "a", "x:y", "---\nb: 1\n\na: \"x:y\"\n---\n\nB"},
		"CRLF":                  {"---\r\na: 1\r\n---\r\nB", "b", "2", "---\r\na: 1\r\nb: 2\r\n---\r\nB"},
		"a text without":        {"B\n", "a", "1", "---\na: 1\n---\n\nB\n"},
		"behind the order mark": {"\ufeffB", "a", "1", "\ufeff---\na: 1\n---\n\nB"},
		"emptied":               {"---\na: x\n---\n", "a", "", "---\na: \n---\n"},
	} {
		t.Run(name, func(t *testing.T) {
			have, err := frontmatter.Read([]byte(c.text)).Set(c.key, c.value)
			if err != nil || string(have) != c.want {
				t.Errorf("got %q, error %v", have, err)
			}
		})
	}
}

// Rendered fields are read back unchanged.
func TestRenderLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := frontmatter.Document{Titled: true, Title: drawValue(t), Fields: map[string]string{}, Body: "B"}
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			d.Fields[rapid.StringMatching(`[a-z\-"#\\\.]{1,3}`).Draw(t, "key")] = drawValue(t)
		}
		text, err := frontmatter.Render(d)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, frontmatter.Parse(text)); diff != "" {
			t.Fatalf("%q: got %s", text, diff)
		}
	})
}

func drawValue(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", `"`, `\`, ":", "#", " ", "\t", "é", "\u2028", "---", "\x00", "\xff"}), 0, 6).Draw(t, "value"), "")
}

// setLaw checks a text in which a key is set: the key has the value, all other keys keep theirs, and all other text
// stays, in its order.
func setLaw(t interface{ Fatalf(string, ...any) }, text []byte, key, value string) {
	before := frontmatter.Read(text)
	old, _ := before.Field(key)
	after, err := before.Set(key, value)
	if err != nil {
		return
	}
	v := frontmatter.Read(after)
	if got, ok := v.Get(key); !ok || got != value {
		t.Fatalf("%q: the key %q is %q in %q", text, key, got, after)
	}
	if !bytes.Equal(after[v.Body():], text[before.Body():]) && before.Has() {
		t.Fatalf("%q: the body differs in %q", text, after)
	}
	if !before.Has() && !bytes.HasSuffix(after, text[before.Body():]) {
		t.Fatalf("%q: text is lost in %q", text, after)
	}
	if n := len(text) - len(old.Raw); len(after) < n {
		t.Fatalf("%q: the result %q is shorter than the text that stays", text, after)
	}
	for _, f := range before.Fields() {
		if got, _ := v.Get(f.Key); f.Key != key {
			if want, _ := before.Get(f.Key); got != want {
				t.Fatalf("%q: the key %q is %q, want %q, in %q", text, f.Key, got, want, after)
			}
		}
	}
	if again, err := v.Set(key, value); err != nil || !bytes.Equal(again, after) {
		t.Fatalf("%q: a second Set returned %q, error %v", text, again, err)
	}
}

func FuzzSet(f *testing.F) {
	for _, text := range []string{"---\na: 1\n---\nB", "---\r\na : \"x\"\r\n---\r\n", "\ufeff---\n---", "B", "---\n:\n---\n", "---\n\xff: \x00\n---\n"} {
		f.Add([]byte(text), "a", "x: y")
		f.Add([]byte(text), "\xff", "")
	}
	f.Fuzz(func(t *testing.T, text []byte, key, value string) {
		setLaw(t, text, key, value)
		d := frontmatter.Parse(text)
		if again, err := frontmatter.Render(d); err == nil && d.Fields != nil {
			d.Body = strings.TrimSpace(d.Body)
			if diff := cmp.Diff(d.Fields, frontmatter.Parse(again).Fields); diff != "" && (len(d.Fields) > 0 || d.Titled) {
				t.Fatalf("%q: got %s", text, diff)
			}
		}
	})
}

// A megabyte in one key, and a hundred thousand keys, are read in linear time.
func TestLarge(t *testing.T) {
	var many strings.Builder
	many.WriteString("---\n")
	for i := range 100_000 {
		fmt.Fprintf(&many, "key%d: %d\n", i, i)
	}
	many.WriteString("---\nB")
	for _, text := range []string{"---\n" + strings.Repeat("k", 1<<20) + ": v\n---\n", "---\nk: " + strings.Repeat("\"", 1<<20) + "\n---\n", many.String(), "---\n" + strings.Repeat(":\n", 1<<19)} {
		begun := time.Now()
		setLarge(t, []byte(text))
		if took := time.Since(begun); took > 20*time.Second { // quadratic would take minutes
			t.Errorf("%d bytes took %v", len(text), took)
		}
	}
}

func setLarge(t *testing.T, text []byte) {
	t.Helper()
	after, err := frontmatter.Read(text).Set("key99999", "new")
	if err != nil {
		t.Fatal(err)
	}
	if d := frontmatter.Parse(after); d.Fields["key99999"] != "new" {
		t.Errorf("got %d keys", len(d.Fields))
	}
}

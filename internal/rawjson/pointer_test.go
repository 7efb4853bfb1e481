package rawjson

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// rfc6901 is the document of RFC 6901, section 5, with its pointers.
const rfc6901 = `{
      "foo": ["bar", "baz"],
      "": 0,
      "a/b": 1,
      "c%d": 2,
      "e^f": 3,
      "g|h": 4,
      "i\\j": 5,
      "k\"l": 6,
      " ": 7,
      "m~n": 8
   }`

func TestLocate(t *testing.T) {
	for pointer, want := range map[string]string{
		"": rfc6901, "/foo": `["bar", "baz"]`, "/foo/0": `"bar"`, "/foo/1": `"baz"`, "/": "0", "/a~1b": "1", "/c%d": "2", "/e^f": "3", "/g|h": "4",
		`/i\j`: "5", `/k"l`: "6", "/ ": "7", "/m~0n": "8",
	} {
		from, to, err := Locate([]byte(rfc6901), pointer)
		if err != nil || rfc6901[from:to] != want {
			t.Errorf("%q: %.30q, %v, want %q", pointer, rfc6901[from:to], err, want)
		}
	}
}

func TestLocateElsewhere(t *testing.T) {
	const text = ` [ {"a" : [ [] , "]" ,{"\u0062":[1 , 2]} ]} , -1.5e3,[]  ] `
	for pointer, want := range map[string]string{"/0/a/0": "[]", "/0/a/1": `"]"`, "/0/a/2/b": "[1 , 2]", "/0/a/2/b/1": "2", "/1": "-1.5e3", "/2": "[]", "": strings.TrimSpace(text)} {
		from, to, err := Locate([]byte(text), pointer)
		if err != nil || text[from:to] != want {
			t.Errorf("%q: %q, %v, want %q", pointer, text[from:to], err, want)
		}
	}
	for pointer, want := range map[string]string{
		"a": "does not begin with /", "/3": `"/3": the array is shorter`, "/-1": "no index", "/00": "no index", "/+1": "no index", "/-": "no index", "/0/b": "no such member",
		"/1/0": `"/1/0": there is neither`, "/0/a/7/b": `"/0/a/7": the array is shorter`, "/0/~": "tilde", "/0/~2": "tilde", "/2/0": "shorter", "/": "no index",
	} {
		if _, _, err := Locate([]byte(text), pointer); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", pointer, err, want)
		}
	}
	for _, bad := range []string{"", "{", `{"a":1,"a":2}`, "[1,]"} {
		if _, _, err := Locate([]byte(bad), "/a"); err == nil {
			t.Errorf("Locate found a value in %q", bad)
		}
	}
}

// FuzzLocate compares located values with another JSON reader's.
func FuzzLocate(f *testing.F) {
	f.Add([]byte(rfc6901), "/foo/0")
	f.Add([]byte(`[[{"a~/":[]}]]`), "/0/0/a~0~1")
	f.Add([]byte(` {"":{"":[1,[2]]}} `), "///1/0")
	f.Fuzz(func(t *testing.T, b []byte, pointer string) {
		from, to, err := Locate(b, pointer)
		if err != nil {
			return
		}
		if Check(b[from:to]) != nil || hasSpaceAround(b[from:to]) {
			t.Fatalf("%q in %q: got %q", pointer, b, b[from:to])
		}
		var v any
		if json.Unmarshal(b, &v) != nil {
			return // numbers beyond the range of float64
		}
		for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
			if pointer == "" {
				break
			}
			switch x := v.(type) {
			case map[string]any:
				v = x[strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")]
			case []any:
				var i int
				fmt.Sscan(name, &i)
				v = x[i]
			}
		}
		var have any
		if json.Unmarshal(b[from:to], &have) == nil && fmt.Sprint(have) != fmt.Sprint(v) && isPlainText(pointer) {
			t.Fatalf("%q in %q: got %v, want %v", pointer, b, have, v)
		}
	})
}

func hasSpaceAround(b []byte) bool { return len(Trim(b)) != len(b) }

// isPlainText reports whether the other reader, which replaces invalid UTF-8, leaves a name unchanged.
func isPlainText(s string) bool {
	return strings.ToValidUTF8(s, "") == s && !strings.ContainsRune(s, '\ufffd')
}

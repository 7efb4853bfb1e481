package plain

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain é😀\n\tx":                  "plain é😀\n\tx",
		"\x1b[31mred\x07\r\x00":          "␛[31mred␇␍␀",
		"\x7f\u0085\u009b31m":            "␡\ufffd\ufffd31m",
		"a\u202eb\u2066c\u202a":          "a\ufffdb\ufffdc\ufffd",
		"\u2069\u202c":                   "\ufffd\ufffd",
		"a\xffb":                         "a\ufffdb",
		"\u2028 \u00a0\u200d":            "\ufffd \u00a0\ufffd",
		"pass\u200bword\u00adx":          "pass\ufffdword-x",
		"a\u200db \u200d":                "a\ufffdb \ufffd",
		"\u2060\ufeff\u3164":             "\ufffd\ufffd\ufffd",
		"a\U000e0041\U000e0100":          "a\ufffd\ufffd",
		"👩\u200d👩\u200d👧 ❤\ufe0f\u200d🔥": "👩\u200d👩\u200d👧 ❤\ufe0f\u200d🔥", // an emoji of several characters
		"می\u200cخواهم क्\u200dष":        "می\u200cخواهم क्\u200dष",        // correct spelling
		"م\u200c\u200cخ":                 "م\ufffd\ufffdخ",
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := Printable(string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")))
		if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
			return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x2028 && r <= 0x202e
		}) {
			t.Fatalf("%q is not printable", s)
		}
		if Printable(s) != s {
			t.Fatalf("a second call changes %q", s)
		}
	})
}

// Bytes are printed in the largest unit, and counts with the plural of their noun.
func TestSpelling(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KB", 1536: "1.5 KB", 5 << 20: "5.0 MB", 3 << 30: "3.0 GB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: got %s", n, got)
		}
	}
	for n, want := range map[int]string{0: "0 turns", 1: "1 turn", 2: "2 turns"} {
		if got := Count(n, "turn"); got != want {
			t.Errorf("%d: got %s", n, got)
		}
	}
}

// Characters that are unsafe on a terminal become escapes, and the JSON means the same.
func TestJSON(t *testing.T) {
	for in, want := range map[string]string{
		"{\r\n\t\"a\": \"é😀\"}":            "{ \n\t\"a\": \"é😀\"}",
		"\"\u009b31m\u202e\u00ad\x7f\"":    `"\u009b31m\u202e\u00ad\u007f"`,
		"\"\U000e0041 a\u200db 👩\u200d👧\"": "\"\\udb40\\udc41 a\\u200db 👩\u200d👧\"",
	} {
		if got := JSON(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		in, err := json.Marshal(rapid.String().Draw(t, "text"))
		if err != nil {
			t.Fatal(err)
		}
		out := JSON(string(in))
		var want, have string
		if err := errors.Join(json.Unmarshal(in, &want), json.Unmarshal([]byte(out), &have)); err != nil || have != want || Printable(out) != out {
			t.Fatalf("%q became %q, %v", in, out, err)
		}
	})
}

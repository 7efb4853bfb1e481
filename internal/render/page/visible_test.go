package page

import (
	"testing"
	"unicode"
)

// Invisible characters are shown by number, unless they only join or separate two visible characters.
func TestVisible(t *testing.T) {
	for s, want := range map[string]string{
		"plain\n\ttext":          "plain\n\ttext",
		"a\x1b[2Jb\r\x00\x7f":    "a␛[2Jb␍␀␡",
		"a\u0085b\xffc":          "a\ufffdb\ufffdc",
		"pass\u200bword":         "pass[U+200B]word",
		"pass\u200dword":         "pass[U+200D]word",
		"\u202egnp.exe\u202c":    "[U+202E]gnp.exe[U+202C]",
		"\u2066a\u2069\u200f":    "[U+2066]a[U+2069][U+200F]",
		"\ufeffa\u00adb\u2060":   "[U+FEFF]a[U+00AD]b[U+2060]",
		"\U000e0041\U000e007f":   "[U+E0041][U+E007F]",
		"😀\U000e0101\U000e0154":  "😀[U+E0101][U+E0154]",
		"❤\ufe0f 1\ufe0f\u20e3":  "❤\ufe0f 1\ufe0f\u20e3",
		"❤\ufe0f\ufe0f a\ufe0f":  "❤\ufe0f[U+FE0F] a[U+FE0F]",
		"\u3164\u115f\u034f":     "[U+3164][U+115F][U+034F]",
		"a\u2028b\u2029":         "a[U+2028]b[U+2029]",
		"👁️\u200d🗨️":             "👁️\u200d🗨️",
		"👩🏽\u200d🚀":              "👩🏽\u200d🚀",
		"👩\u200d\u200d🚀":         "👩[U+200D][U+200D]🚀",
		"👩\u200d":                "👩[U+200D]",
		"می\u200cخواهم \u200cx":  "می\u200cخواهم [U+200C]x",
		"क्\u200dष \u0600":       "क्\u200dष \u0600",
		"a\ufe0f\u200db e\u0301": "a[U+FE0F][U+200D]b e\u0301",
		"é\u200dé":               "é[U+200D]é",
		"❤\ufe0e\u200c🔥":         "❤\ufe0e[U+200C]🔥",
	} {
		if got := visible(s); got != want {
			t.Errorf("visible(%+q) = %+q, want %+q", s, got, want)
		}
	}
	if got := inline("a\nb\tc"); got != "a␊b␉c" {
		t.Errorf("inline: %q", got)
	}
}

// In any text, no two invisible characters are adjacent, the direction never changes, and all visible characters are
// there in order.
func FuzzVisible(f *testing.F) {
	f.Add("👩\u200d🚀 a\u202eb\ufe0f\u200d1\ufe0f\u20e3")
	f.Add("\u200d\u200c😀\ufe0f\u200d😀\u2028\xff\x1b")
	f.Fuzz(func(t *testing.T, s string) {
		got := visible(s)
		run := 0
		for _, r := range got {
			if unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) || r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
				t.Fatalf("%+q has %U", got, r)
			}
			if run++; !unseen(r) {
				run = 0
			}
			if run > 2 { // a selector and a joiner
				t.Fatalf("%+q has %d adjacent invisible characters", got, run)
			}
		}
		if again := visible(got); again != got {
			t.Fatalf("%+q became %+q", got, again)
		}
		rest := got
		for _, r := range s {
			if unseen(r) || r < 0x20 || r >= 0x7f && r < 0xa0 {
				continue
			}
			at := indexRune(rest, r)
			if at < 0 {
				t.Fatalf("%+q lacks %U of %+q", got, r, s)
			}
			rest = rest[at:]
		}
	})
}

// indexRune returns the rest of a text after the first r, or -1.
func indexRune(s string, r rune) int {
	for i, have := range s {
		if have == r {
			return i + len(string(r))
		}
	}
	return -1
}

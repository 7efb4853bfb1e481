package filename_test

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/disk/filename"
)

// Different paths have different texts. A canonical text leads back to its path.
func TestText(t *testing.T) {
	for path, text := range map[string]string{"a/b": "a/b", "ö=": "ö=", "\xff": "=FF", "=FF": "=3DFF", "=3DFF": "=3D3DFF", "=3D": "=3D", "=3D3D": "=3D3D", "=7F": "=7F", "\xc3": "=C3", "=": "=", "=F": "=F",
		"=3D\xff": "=3D=FF", "=\xff": "==FF", "=3\xff": "=3=FF"} {
		if got := filename.Text(path); got != text {
			t.Errorf("Text(%q) = %q, want %q", path, got, text)
		}
	}
	if path, ok := filename.OfText("=C3=A9"); ok {
		t.Errorf("the text of %q is not the first one", path)
	}
	letter := rapid.SampledFrom([]byte("=3DFC9a/\xff\xc3\xa9"))
	rapid.Check(t, func(t *rapid.T) {
		path := string(rapid.SliceOf(letter).Draw(t, "path"))
		text := filename.Text(path)
		if back, ok := filename.OfText(text); !ok || back != path || !utf8.ValidString(text) {
			t.Fatalf("Text(%q) = %q, and its path is %q, %v", path, text, back, ok)
		}
	})
}

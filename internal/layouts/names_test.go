package layouts_test

import (
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/layouts"
)

func TestFileName(t *testing.T) {
	for id, want := range map[string]string{
		"travel-planner-golden": "travel-planner-golden", "caf\u00e9 \U0001f600": "caf\u00e9 \U0001f600", "a.b": "a.b", ".hidden": ".hidden", "a=b": "a=b",
		"../x": "..=2Fx", "a/b": "a=2Fb", `a\b`: "a=5Cb", "C:x": "C=3Ax", ".": "=2E", "..": ".=2E", "x.": "x=2E", "x ": "x=20", "CON": "=43ON", "nul.txt": "=6Eul.txt",
		"com7": "=63om7", "com77": "com77", "a=2Fb": "a=3D2Fb", "a=~": "a=3D~", "\x00": "=00", "a*?": "a=2A=3F", "\xff": "\xff",
	} {
		if got := layouts.FileName(id); got != want {
			t.Errorf("FileName(%q) = %q, want %q", id, got, want)
		}
		if back, ok := layouts.ParseFileName(want); !ok || back != id {
			t.Errorf("ParseFileName(%q) = %q, %v, want %q", want, back, ok, id)
		}
	}
	for _, name := range []string{"a=41", "a:b", "CON", "", "x.", strings.Repeat("x", 201), layouts.FileName(strings.Repeat("x", 201))} {
		if id, ok := layouts.ParseFileName(name); ok {
			t.Errorf("ParseFileName(%q) = %q, want a refusal", name, id)
		}
	}
}

// T-30: the name of any id is one element of a path of at most 200 bytes. Different ids have different names. The id
// can be parsed from the name unless it was shortened.
func TestFileNameLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.OneOf(rapid.String(), rapid.StringMatching(`[=~./\\:A-F0-9 ]{0,40}`), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 512), func(b []byte) string { return string(b) }))
		a, b := ids.Draw(t, "a"), ids.Draw(t, "b")
		name := layouts.FileName(a)
		if !filepath.IsLocal(name) || !layouts.IsFileName(name) || len(name) > 200 || strings.ContainsAny(name, `/\:`) {
			t.Fatalf("%q is not a safe name", name)
		}
		if back, ok := layouts.ParseFileName(name); ok != !layouts.IsShortened(name) || ok && back != a {
			t.Fatalf("the name of %q is %q, which parses to %q, %v", a, name, back, ok)
		}
		if a != b && name == layouts.FileName(b) {
			t.Fatalf("%q and %q have the same name %q", a, b, name)
		}
	})
}

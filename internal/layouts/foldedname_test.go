package layouts_test

import (
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/layouts"
)

// Names that are equal on some system have the same folded name.
func TestFoldedName(t *testing.T) {
	t.Run("D-67 case and Unicode form", rapid.MakeCheck(func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("aKe\u0301\u0302é\u1ebfÅ\u212a\u212b\u037e\u1fef;\u0130I\u0307/.한\u1112\u1161\u11ab")))).Draw(t, "name")
		want := layouts.FoldedName(name)
		upper := strings.Map(func(r rune) rune {
			if 'a' <= r && r <= 'z' {
				return r - 'a' + 'A'
			}
			return r
		}, name)
		for form, other := range map[string]string{"NFC": norm.NFC.String(name), "NFD": norm.NFD.String(name), "upper case": upper} {
			if have := layouts.FoldedName(other); have != want {
				t.Fatalf("the folded name of %q is %q, but in %s form, %q, it is %q", name, want, form, other, have)
			}
		}
	}))
}

// A location whose path conflicts with a taken name on some system gets its alternative path.
func TestNames(t *testing.T) {
	var n layouts.Names
	n.Take("docs/A/x")
	for _, c := range []struct {
		layouts.Location
		want string
	}{
		{layouts.Location{Path: "docs/a", Apart: "docs/=61.md"}, "docs/=61.md"},               // a file where a folder exists
		{layouts.Location{Path: "docs/A/X", Apart: "docs/A/=58.md"}, "docs/A/=58.md"},         // equal except for case
		{layouts.Location{Path: "docs/A/y", Apart: "docs/=41/=79.md"}, "docs/A/y"},            // in the folder
		{layouts.Location{Path: "docs/a/z", Apart: "docs/=61/=7A.md"}, "docs/=61/=7A.md"},     // in another folder, equal except for case
		{layouts.Location{Path: "docs/A/x/y", Apart: "docs/=41/=78/=79"}, "docs/=41/=78/=79"}, // below a file
		{layouts.Location{Path: "agents/k", Apart: "agents/k=~1", Folder: true}, "agents/k"},
		{layouts.Location{Path: "agents/k", Apart: "agents/k=~2", Folder: true}, "agents/k=~2"},
		{layouts.Location{Path: "docs/A/x"}, "docs/A/x"}, // it has no alternative
	} {
		if have := n.Assign(c.Location); have != c.want {
			t.Errorf("%+v is at %s", c.Location, have)
		}
	}
}

package show

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// run makes a run of a tree from "id<parent", or from "id" for a run without a parent.
func run(text string) TreeRun {
	id, parent, _ := strings.Cut(text, "<")
	return TreeRun{Run: Run{Type: "expert", ID: id}, Parent: parent}
}

func TestNested(t *testing.T) {
	for _, c := range []struct{ runs, want string }{
		{"a b c", "a b c"},
		{"a b<a c d<a e<b", "a -b --e -d c"},
		{"b<a a", "a -b"}, // a child that is seen first
		{"b<gone a", "b a"},
		{"a<a", "a"},
		{"a<b b<a c<a", "a -b -c"},
		{"a x b<x x c<x", "a x -b -c x"}, // two of one id, of different types
		{"", ""},
	} {
		var list []TreeRun
		for _, text := range strings.Fields(c.runs) {
			list = append(list, run(text))
		}
		var got []string
		for _, r := range nested(list) {
			got = append(got, strings.Repeat("-", r.Depth)+r.ID)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.runs, got, c.want)
		}
	}
}

// Every run is in the tree once, whatever the delegations are.
func TestNestedHasAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []TreeRun
		for i, parent := range rapid.SliceOfN(rapid.IntRange(0, 12), 0, 12).Draw(t, "parents") {
			list = append(list, run(fmt.Sprintf("%d<%d", i, parent)))
		}
		var ids []string
		for _, r := range nested(list) {
			ids = append(ids, r.ID)
		}
		if len(ids) != len(list) {
			t.Fatalf("got %d of %d runs: %v", len(ids), len(list), ids)
		}
		slices.Sort(ids)
		if n := len(slices.Compact(ids)); n != len(list) {
			t.Fatalf("got %d of %d runs: %v", n, len(list), ids)
		}
	})
}

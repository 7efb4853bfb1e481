package tally_test

import (
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// acceptance names the lines by which each store that tally replaces is accepted.
var acceptance = []string{
	"T-01 .. T-39", // tally-evals
	"E-01 .. E-47", // errata
	"P-01 .. P-41", // perstack
	"H-01 .. H-20", // ailoop
	"D-01 .. D-72", // Tavern
}

// idsBefore finds the ids that the name of a subtest begins with.
var idsBefore = regexp.MustCompile(`^([TEPHD]-[0-9]{2}[ ,/]+)+`)

// Each line of acceptance has a subtest with its id in its name, and every id in a subtest's name belongs to a line.
func TestAcceptance(t *testing.T) {
	named := make(map[string]string) // id -> a file with a subtest
	sources(t, func(path string, _ *token.FileSet, file *ast.File) {
		if !strings.HasSuffix(path, "_test.go") || path == "acceptance_test.go" {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, _ := strconv.Unquote(lit.Value)
				for _, id := range strings.FieldsFunc(idsBefore.FindString(text), func(r rune) bool { return strings.ContainsRune(" ,/", r) }) {
					named[id] = path
				}
			}
			return true
		})
	})
	demanded := make(map[string]bool)
	for _, span := range acceptance {
		for _, id := range idsOf(t, span) {
			demanded[id] = true
			if named[id] == "" {
				t.Errorf("no subtest is called %q", id+" ...")
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(named)) {
		if !demanded[id] {
			t.Errorf("%s has a subtest for %s, which is not among the lines", named[id], id)
		}
	}
}

// idsOf lists the ids of a span, such as D-03 .. D-39.
func idsOf(t *testing.T, span string) (ids []string) {
	from, to, _ := strings.Cut(span, " .. ")
	first, err := strconv.Atoi(from[2:])
	last, err2 := strconv.Atoi(to[2:])
	if err != nil || err2 != nil || first > last || from[:2] != to[:2] {
		t.Fatalf("%q is not a range of ids", span)
	}
	for n := first; n <= last; n++ {
		id := strconv.Itoa(n)
		ids = append(ids, from[:2]+strings.Repeat("0", 2-len(id))+id)
	}
	return ids
}

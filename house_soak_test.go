package tally_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// beside are helpers that ask whether the long campaigns are on and play no longer then.
var beside = []string{"besideOthers"}

// soaked is a line of make soak.
type soaked struct {
	packages    []string
	names       *regexp.Regexp
	race, short bool
}

// soakLines reads the lines of the Makefile by which tests play their long campaigns.
func soakLines(t *testing.T) (list []soaked) {
	t.Helper()
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		_, args, ok := strings.Cut(line, "TALLY_SOAK=1 $(GO) test ")
		if !ok {
			continue
		}
		s := soaked{names: regexp.MustCompile("")}
		fields := strings.Fields(strings.ReplaceAll(args, "'", ""))
		for i, f := range fields {
			switch {
			case f == "-run":
				s.names = regexp.MustCompile(fields[i+1])
			case f == "-race":
				s.race = true
			case f == "-short":
				s.short = true
			case strings.HasPrefix(f, "."):
				s.packages = append(s.packages, filepath.ToSlash(filepath.Clean(strings.TrimPrefix(f, "./"))))
			}
		}
		list = append(list, s)
	}
	return list
}

// plays reports whether a line runs a test, and the test does not leave itself out there.
func (s soaked) plays(dir, name string, calls map[string]bool) bool {
	covers := func(pattern string) bool {
		parent, all := strings.CutSuffix(pattern, "/...")
		return dir == pattern || all && (dir == parent || strings.HasPrefix(dir, parent+"/"))
	}
	return slices.ContainsFunc(s.packages, covers) && s.names.MatchString(name) && !(s.race && calls["NotUnderRace"]) && !(s.short && calls["Long"])
}

// calls lists what a function calls: by name alone, whatever the receiver or the package.
func calls(f *ast.FuncDecl) map[string]bool {
	names := make(map[string]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			switch fun := call.Fun.(type) {
			case *ast.Ident:
				names[fun.Name] = true
			case *ast.SelectorExpr:
				names[fun.Sel.Name] = true
			}
		}
		return true
	})
	return names
}

// A test that plays longer in make soak, or only there, is run by a line of it. Its helpers are
// looked at one call deep.
func TestHouseSoak(t *testing.T) {
	tests := make(map[string]map[string]map[string]bool) // by folder and name: what it calls
	sources(t, func(path string, _ *token.FileSet, file *ast.File) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if tests[dir] == nil {
			tests[dir] = make(map[string]map[string]bool)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				tests[dir][f.Name.Name] = calls(f)
			}
		}
	})
	lines, count := soakLines(t), 0
	for dir, functions := range tests {
		soaks := func(name string) bool {
			return !slices.Contains(beside, name) && (functions[name]["Soak"] || functions[name]["OnlySoak"])
		}
		for name, called := range functions {
			helped := false
			for helper := range called {
				helped = helped || soaks(helper)
			}
			if !strings.HasPrefix(name, "Test") || !soaks(name) && !helped {
				continue
			}
			count++
			if !slices.ContainsFunc(lines, func(s soaked) bool { return s.plays(dir, name, called) }) {
				t.Errorf("%s: no line of make soak runs %s, or it leaves itself out there", dir, name)
			}
		}
	}
	if count < 30 {
		t.Errorf("only %d tests were found", count)
	}
}

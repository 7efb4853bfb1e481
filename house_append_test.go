package tally_test

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/log"
)

// These packages may hold logs whose appends do not wait for trees. All others use the log of a store, *tally.Log,
// which waits.
var (
	mayHoldLogs = map[string]bool{
		"log": true, "internal/testkit/logtest": true, ".": true, "embedded": true, "internal/testkit/storetest": true,
		"cmd/tally-bench/ways.go":         true, // measures the log beside the raw server
		"internal/storecopy":              true, // no trees are kept of an unfinished copy; after a merge the next keeper writes their files
		"cmd/internal/admin/copyplace.go": true, // opens the logs for it
		"cmd/internal/admin/restore.go":   true, // reads the head of what it restored
	}
	mayNotWait = map[string]bool{
		"internal/tree/keeper/open.go": true, // the keeper of a tree would wait for itself
		"stores/perstack/handle.go":    true, // only the last append of a save is acknowledged
	}
)

// No code can append past the files of trees: the type of a raw log is named in few places, and
// the log of a store has no method that appends and does not wait.
func TestHouseAppends(t *testing.T) {
	used := make(map[string]bool)
	sources(t, func(path string, fset *token.FileSet, file *ast.File) {
		path = filepath.ToSlash(path)
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, _ := sel.X.(*ast.Ident)
			isRaw := pkg != nil && pkg.Name == "log" && (sel.Sel.Name == "Log" || sel.Sel.Name == "Open" || sel.Sel.Name == "OpenOn")
			switch where := fset.Position(sel.Pos()); {
			case isRaw && !mayHoldLogs[path] && !mayHoldLogs[filepath.ToSlash(filepath.Dir(path))]:
				t.Errorf("%v: a log whose appends do not wait for trees: use that of a store", where)
			case sel.Sel.Name == "raw" && filepath.Dir(path) == "." && path != "shown.go":
				t.Errorf("%v: the raw log of a store is used by shown.go alone", where)
			case sel.Sel.Name == "Unshown" && !mayNotWait[path] && isCall(file, sel):
				t.Errorf("%v: appends to this store do not wait for trees", where)
			case sel.Sel.Name == "Unshown" && isCall(file, sel):
				used[path] = true
			}
			return true
		})
	})
	for path := range mayNotWait {
		if !used[path] {
			t.Errorf("%s does not need to be allowed", path)
		}
	}
	raw, of := reflect.TypeFor[*log.Log](), reflect.TypeFor[*tally.Log]()
	for i := range raw.NumMethod() {
		m := raw.Method(i)
		if !strings.HasPrefix(m.Name, "Append") {
			continue
		}
		if own, ok := of.MethodByName(m.Name); !ok || !shownMethods[m.Name] {
			t.Errorf("%v has %s, and TestShow does not know that of %v (%v)", raw, m.Name, of, own.Type)
		}
	}
}

// isCall reports whether a file calls what a selector names.
func isCall(file *ast.File, sel *ast.SelectorExpr) (is bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		is = is || ok && call.Fun == sel
		return !is
	})
	return is
}

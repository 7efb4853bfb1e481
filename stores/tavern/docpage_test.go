package tavern_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// questions are open questions of the original specification, in its own words: four that it calls open, and three gaps
// of its coverage.
var questions = []string{
	"the directory hierarchy and naming conventions are not specified",
	"What are the initial durability guarantees? fsync after every write? Periodic flush?",
	"How are messages encoded as files? What metadata is required?",
	"When two agents write to the same file simultaneously, what happens? Last-write-wins? Merge? Error?",
	"No specification for concurrent file access by multiple agents",
	"does not specify whether doc store documents themselves are versioned",
	"No specification for maximum storage consumption ... or per-agent storage limits",
}

// operations are the original's operations.
var operations = strings.Fields(`DocStore.create read update save delete exists listAll readAll AgentPersistence.save saveAll load loadAll restore
	clearAllSessions encodePathForKey listProjects getSessions getSession getMessages getMostRecentSession appendSessionEvent loadSessionEvents`)

func TestTavernPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/from-tavern.md")
	must(t, err)
	page := string(text)
	t.Run("D-72 each open question is answered in a row of its own", func(t *testing.T) {
		section := page[strings.Index(page, "## Open questions"):strings.Index(page, "What else it leaves open")]
		rows := regexp.MustCompile(`(?m)^\| (.*") \| (.*) \|$`).FindAllStringSubmatch(section, -1)
		if len(rows) != len(questions) {
			t.Fatalf("got %d rows, want one for each of %d questions", len(rows), len(questions))
		}
		for i, question := range questions {
			if !strings.Contains(rows[i][1], question) || len(rows[i][2]) < 100 {
				t.Errorf("row %d is %q, want an answer to %q", i, rows[i][0], question)
			}
		}
		if !strings.Contains(page, "\n> \"No separate database, key-value store, or custom storage engine exists\"\n") {
			t.Error("the page does not name the deviation")
		}
	})
	t.Run("names of the original", func(t *testing.T) {
		for _, name := range operations {
			if !regexp.MustCompile("(?m)^\\|[^|]*`([A-Za-z]+\\.)?" + strings.ReplaceAll(name, ".", "\\.") + "`").MatchString(page) {
				t.Errorf("no row is about %s", name)
			}
		}
	})
	t.Run("names of this package", func(t *testing.T) {
		have := exported(t)
		for _, name := range regexp.MustCompile("`([A-Z][A-Za-z]+)\\.([A-Z][A-Za-z]+)`").FindAllStringSubmatch(page, -1) {
			if !have[name[1]+"."+name[2]] {
				t.Errorf("the package has no %s.%s", name[1], name[2])
			}
		}
		for _, name := range regexp.MustCompile(`tavern\.([A-Z][A-Za-z]+)|`+"`([A-Z][A-Za-z]+(?:Of|Key|Error|Agent|Agents|Windows|Info))`").FindAllStringSubmatch(page, -1) {
			if !have[name[1]+name[2]] {
				t.Errorf("the package has no %s", name[1]+name[2])
			}
		}
	})
}

// exported returns the exported names of the package, methods with their types.
func exported(t *testing.T) map[string]bool {
	files, err := filepath.Glob("*.go")
	must(t, err)
	have := make(map[string]bool)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		must(t, err)
		if file.Name.Name != "tavern" {
			continue
		}
		for _, decl := range file.Decls {
			add(have, decl)
		}
	}
	return have
}

func add(have map[string]bool, decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			typ := d.Recv.List[0].Type
			if star, ok := typ.(*ast.StarExpr); ok {
				typ = star.X
			}
			name = typ.(*ast.Ident).Name + "." + name
		}
		have[name] = true
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				have[s.Name.Name] = true
			case *ast.ValueSpec:
				for _, n := range s.Names {
					have[n.Name] = true
				}
			}
		}
	}
}

package tally_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tallylog/tally"

// imports lists, for each package of the module, what it depends on, directly or
// not.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Deps \" \"}}", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		deps[words[0]] = words[1:]
	}
	return deps
}

// Nothing imports upward.
func TestArrows(t *testing.T) {
	deps := imports(t)
	if len(deps) < 10 {
		t.Fatalf("only %d packages were found", len(deps))
	}
	// What a package must not depend on, directly or not.
	for pkg, forbidden := range map[string][]string{
		"events":                  {"/log", "/projector", "/snapshot", "/embedded", "/formats", "/cmd", "github.com/nats-io/"},
		"log":                     {"/projector", "/snapshot", "/embedded", "/formats", "/cmd", "github.com/nats-io/nats-server"},
		"log/logtest":             {"/projector", "/snapshot", "/embedded", "/formats", "/cmd", "github.com/nats-io/nats-server"},
		"stores/errata/recipe":    {"/events", "/log", "/projector", "/snapshot", "/embedded", "/formats", "/cmd", "github.com/nats-io/"},
		"snapshot":                {"/log", "/projector", "/embedded", "/formats", "/cmd"},
		"projector":               {"/log", "/embedded", "/formats", "/cmd", "github.com/nats-io/"},
		"":                        {"/embedded", "/formats", "/cmd", "github.com/nats-io/nats-server", "modernc.org/"},
		"projector/catalog":       {"/log", "/embedded", "/formats", "/cmd", "github.com/nats-io/"},
		"formats":                 {"", "/embedded", "/cmd", "github.com/nats-io/nats-server"},
		"stores/evals/tallydir":   {"", "/embedded", "/cmd", "github.com/nats-io/nats-server"},
		"stores/errata/erratadir": {"", "/embedded", "/cmd", "github.com/nats-io/nats-server"},
		"stores/ailoop/ailoopdir": {"", "/embedded", "/cmd", "github.com/nats-io/nats-server"},
	} {
		path := strings.TrimSuffix(module+"/"+pkg, "/")
		list, ok := deps[path]
		if !ok {
			t.Errorf("there is no package %s", path)
		}
		for _, f := range forbidden {
			if f == "" || strings.HasPrefix(f, "/") {
				f = module + f
			}
			for _, dep := range list {
				if dep == f || strings.HasPrefix(dep, f+"/") && f != module || strings.HasSuffix(f, "/") && strings.HasPrefix(dep, f) || f == "github.com/nats-io/nats-server" && strings.HasPrefix(dep, f) {
					t.Errorf("%s depends on %s", path, dep)
				}
			}
		}
	}
	// A client program does not link a server.
	for path, list := range deps {
		below := strings.TrimPrefix(path, module+"/")
		if !strings.HasPrefix(below, "cmd/") && below != "embedded" && below != "internal/storetest" && slices.Contains(list, module+"/embedded") {
			t.Errorf("%s depends on the embedded server", path)
		}
	}
}

// sources parses the module's Go files.
func sources(t *testing.T, visit func(path string, fset *token.FileSet, file *ast.File)) {
	t.Helper()
	count := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "tools") {
			if err == nil {
				err = filepath.SkipDir
			}
			return err
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		count++
		visit(path, fset, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count < 50 {
		t.Fatalf("only %d files were found", count)
	}
}

// The event log is called log. So the standard logger is not imported, nothing
// else has the name, and no import is renamed.
func TestNamedLog(t *testing.T) {
	sources(t, func(path string, fset *token.FileSet, file *ast.File) {
		for _, imp := range file.Imports {
			if imp.Path.Value == `"log"` {
				t.Errorf("%s imports the standard logger", path)
			}
			if imp.Name != nil && imp.Name.Name != "_" {
				t.Errorf("%s renames %s", path, imp.Path.Value)
			}
		}
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			var names []*ast.Ident
			switch n := n.(type) {
			case *ast.Field:
				names = n.Names
			case *ast.ValueSpec:
				names = n.Names
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					for _, left := range n.Lhs {
						if id, ok := left.(*ast.Ident); ok {
							names = append(names, id)
						}
					}
				}
			}
			for _, name := range names {
				if name.Name == "log" {
					t.Errorf("%v: a variable, field or parameter is called log", fset.Position(name.Pos()))
				}
			}
			return true
		})
	})
}

// Every package says what it is for, in one place.
func TestPackageDocs(t *testing.T) {
	docs := make(map[string][]string)
	dirs := make(map[string]bool)
	sources(t, func(path string, _ *token.FileSet, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		dir := filepath.Dir(path)
		dirs[dir] = true
		if file.Doc != nil {
			docs[dir] = append(docs[dir], path)
		}
	})
	for dir := range dirs {
		if len(docs[dir]) != 1 {
			t.Errorf("%s has %d package comments %v, want one", dir, len(docs[dir]), docs[dir])
		}
	}
}

// The examples in the README are among those that compile and run: each has its
// lines, in their order, in one of the files with examples.
func TestReadmeExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("example*_test.go")
	rooms, err2 := filepath.Glob("stores/*/example*_test.go")
	if err := errors.Join(err, err2); err != nil || len(files) == 0 || len(rooms) == 0 {
		t.Fatalf("%v, %v, %v", files, rooms, err)
	}
	files = append(files, rooms...)
	blocks := strings.Split(string(readme), "```go\n")[1:]
	if len(blocks) < 2 {
		t.Errorf("the README has %d Go examples, want a chat and a conversation", len(blocks))
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		missing := make(map[string]string)
		for _, name := range files {
			example, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if line := firstMissing(block, string(example)); line != "" {
				missing[name] = line
			}
		}
		if len(missing) == len(files) {
			t.Errorf("no example has the lines of\n%s\nthe first that is missing: %q", block, missing)
		}
	}
}

// firstMissing gives the first line of a block that does not follow in a text.
func firstMissing(block, text string) string {
	for line := range strings.Lines(block) {
		line = strings.TrimSpace(line)
		var ok bool
		if _, text, ok = strings.Cut(text, line); !ok {
			return line
		}
	}
	return ""
}

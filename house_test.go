package tally_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tallylog/tally/internal/testkit"
)

const module = "github.com/tallylog/tally"

// arrows lists the packages of the module that each package may import: $ stands for the match of the first *, and a
// dot for the root. The first matching row counts. A package imports only packages below it, and no store imports
// another.
var arrows = []struct{ pkg, may string }{
	{"events", "internal/rawjson"},
	{"log", "events internal/bloom internal/rawjson internal/nats/segindex internal/nats/natsfile internal/nats/natswire"},
	{"log/memlog", "log events"},
	{"snapshot", "events internal/rawjson internal/disk/durable"},
	{"projector", "events snapshot internal/rawjson internal/disk/durable internal/disk/statefile"},
	{"internal/catalog", "projector events internal/bloom internal/disk/durable internal/rawjson internal/disk/lockfile internal/disk/statefile"},
	{"internal/erasure", "events internal/disk/durable internal/disk/statefile"},
	{".", "log projector snapshot events internal/erasure"},
	{"projector/view", ". projector events internal/catalog"},
	{"internal/daemon", "log projector events internal/rawjson"}, // decides only when to look, and knows no decisions

	{"internal/agents", "events internal/rawjson"},
	{"internal/agents/shapes", "events internal/rawjson"},
	{"internal/agents/message", "internal/agents internal/agents/* internal/rawjson"}, // the table of the shapes of all
	{"internal/agents/stream", "internal/agents internal/agents/shapes internal/agents/claude internal/agents/codex internal/agents/pi events internal/rawjson"}, // what agents print beside their files
	{"internal/agents/*", "internal/agents internal/agents/shapes events internal/rawjson"},                                                                      // pure: what files say, not where they are read
	{"internal/ingest/redact", "internal/rawjson"}, // pure: no I/O, no clock
	{"internal/ingest", "internal/agents events internal/rawjson internal/ingest/tail log projector internal/ingest/redact"},

	{"internal/layouts", "log projector events internal/disk/durable internal/disk/filename"},
	{"internal/testkit/storagetest", "internal/layouts internal/testkit"},
	{"internal/tree", "internal/layouts log projector events internal/disk/filename"},
	{"internal/layouts/*", "internal/layouts internal/disk/filename"},
	{"stores/internal/sessiondir", "internal/layouts log projector events internal/disk/filename internal/rawjson"},
	{"internal/testkit/layouttest", "internal/layouts internal/testkit/storagetest log log/memlog internal/testkit/logtest projector events internal/testkit"},
	{"stores/*/internal/*", "projector events internal/rawjson stores/$/internal/*"}, // the rules of a store: no store, no I/O
	{"stores/errata/recipe", ""},
	{"stores/*/*dir", "internal/layouts log projector events internal/rawjson internal/sealed stores/internal/sessiondir stores/$/internal/* stores/$/recipe"},
	{"stores/tavern", ". internal/agents internal/agents/claude internal/daemon log projector events internal/rawjson internal/disk/durable internal/disk/filename internal/disk/lines stores/tavern/internal/*"},
	{"stores/*", ". log projector events internal/rawjson internal/disk/durable internal/disk/filename internal/sealed stores/$/internal/* stores/$/recipe"},

	{"internal/registry", ". log projector events internal/rawjson"},
	{"internal/storecopy", "log projector events internal/erasure internal/rawjson internal/registry internal/storedir internal/disk/backup internal/nats/natsfile"},
	{"internal/storedir", "log events internal/catalog internal/nats/natsfile internal/disk/durable internal/disk/lockfile internal/disk/statefile internal/quota"}, // facts about a directory: starts no server
	{"internal/daemon/runner", ". internal/daemon internal/catalog projector events internal/disk/durable internal/disk/statefile"},
	{"internal/tree/keeper", ". internal/tree internal/storedir internal/layouts internal/layouts/* log projector events internal/nats/natsdial internal/config internal/disk/durable internal/disk/lockfile internal/disk/statefile"},
	{"embedded", ". projector/view internal/disk/backup internal/erasure internal/daemon internal/daemon/runner internal/tree/keeper internal/storedir internal/layouts log log/memlog projector internal/catalog snapshot events internal/nats/natsfile internal/nats/natspull internal/nats/natsdial internal/config internal/disk/durable internal/disk/lockfile internal/quota internal/registry internal/render"},
	{"examples", "internal/testkit"},
	{"examples/*", ". embedded events log projector projector/view stores/*"},
	{"cmd", ""},
	{"cmd/internal/bashline", ""},
	{"cmd/internal/cli", "log projector events internal/config internal/render internal/render/plain internal/rawjson internal/sealed internal/disk/statefile"},
	{"cmd/internal/show", ". projector events internal/rawjson internal/reads internal/render internal/render/plain cmd/internal/cli cmd/internal/cmdutil"},
	{"cmd/internal/show/*", ". projector events internal/rawjson internal/render internal/render/plain cmd/internal/cli cmd/internal/show stores/*"}, // the form of one store's sessions
	{"cmd/internal/*", "*"},
	{"cmd/*", "*"},

	{"internal/disk/backup", "internal/disk/durable internal/disk/lockfile"},
	{"internal/nats/natsfile", "internal/disk/durable"},
	{"internal/nats/natswire", ""},
	{"internal/nats/natspull", ""},
	{"internal/nats/natsdial", "log internal/config internal/disk/durable internal/disk/lockfile"},
	{"internal/config", "log events internal/sealed"},
	{"internal/disk/durable", ""},
	{"internal/disk/filename", ""},
	{"internal/testkit/logtest", "log log/memlog events"},
	{"internal/testkit/gentree", "internal/rawjson"},
	{"internal/disk/lines", ""},
	{"internal/disk/lockfile", ""},
	{"internal/metrics", ". log events internal/catalog"},
	{"internal/render/page", "events projector internal/render/plain internal/rawjson internal/render internal/agents/shapes internal/agents/message"},
	{"internal/render/plain", ""},
	{"internal/prices", "events internal/rawjson"},
	{"internal/spend", "projector events internal/catalog internal/config internal/prices internal/render/plain"},
	{"internal/reads", ". log projector events internal/catalog internal/prices internal/rawjson internal/registry internal/render internal/spend"}, // answers for people and programs: no terminal, no HTTP
	{"internal/web", ". log projector events internal/rawjson"},
	{"internal/web/api", ". log projector events internal/catalog internal/prices internal/rawjson internal/reads internal/render internal/web"}, // HTTP, and no decision about content
	{"internal/quota", "log projector events internal/disk/durable internal/disk/lockfile internal/disk/statefile"},
	{"internal/rawjson", ""},
	{"internal/bloom", ""},
	{"internal/render", "projector events internal/render/plain internal/rawjson internal/agents/shapes internal/agents/message"},
	{"internal/sealed", "events internal/rawjson"},
	{"internal/nats/segindex", "internal/disk/durable"},
	{"internal/disk/statefile", "internal/disk/durable"},
	{"internal/testkit/storetest", ". embedded internal/layouts log log/memlog internal/testkit/logtest events internal/config internal/testkit"}, // for tests
	{"internal/testkit/faults", ""},
	{"internal/testkit/schedule", ""},
	{"internal/testkit/smallwrites", "internal/disk/durable internal/testkit/schedule"}, // for tests
	{"internal/testkit", "events"}, // for tests
	{"internal/testkit/transcripts", "internal/agents events projector internal/rawjson internal/testkit"}, // for tests
	{"internal/ingest/tail", "internal/disk/durable internal/disk/lockfile"},
}

// reach lists which packages may depend, directly or not, on heavy packages and on packages of another layer. So a
// client program links no server, and a program that opens a store links no progress bar.
var reach = []struct{ dep, who string }{
	{"github.com/nats-io/nats-server", "embedded internal/testkit/* examples/* cmd/* cmd/internal/* cmd/internal/show/*"},
	{"github.com/nats-io", ". projector/view internal/daemon internal/daemon/runner internal/storedir internal/nats/natsdial internal/registry internal/storecopy internal/tree/keeper log log/memlog internal/layouts internal/layouts/* internal/tree internal/ingest stores/* stores/*/*dir stores/internal/* embedded internal/config internal/metrics internal/quota internal/reads internal/spend internal/web internal/web/* internal/testkit/* examples/* cmd/* cmd/internal/* cmd/internal/show/*"},
	{"modernc.org", "internal/catalog internal/metrics internal/reads internal/spend internal/web/* projector/view internal/storedir internal/storecopy internal/daemon/runner internal/tree internal/tree/keeper embedded internal/testkit/* examples/* cmd/* cmd/internal/* cmd/internal/show/*"},
	{"github.com/gomodule/redigo", "internal/layouts/redis internal/tree/keeper embedded internal/testkit/* examples/* cmd/* cmd/internal/* cmd/internal/show/*"},
	{"github.com/schollz/progressbar", "cmd/* cmd/internal/* cmd/internal/show/*"},
	{"golang.org/x/term", "cmd/* cmd/internal/* cmd/internal/show/*"},
	{module + "/embedded", "internal/testkit/* examples/* cmd/* cmd/internal/* cmd/internal/show/*"},
	{module + "/internal/cli", "cmd/* cmd/internal/* cmd/internal/show/*"},
	{module + "/internal/testkit", "internal/testkit/*"},
	{"testing", "internal/testkit internal/testkit/*"},
	{"github.com/lib/pq", "cmd/tally-bench"},
}

// modules are the folders of the product's module and of the one that measures it.
var modules = []string{".", "cmd/tally-bench"}

// A goPackage is what go list says of a package.
type goPackage struct {
	name          string // its path below the module; "." is the root
	imports, deps []string
}

// list lists the packages of the modules.
func list(t *testing.T) []goPackage {
	t.Helper()
	testkit.NotUnderRace(t)
	var pkgs []goPackage
	for _, dir := range modules {
		cmd := exec.Command("go", "list", "-f", `{{.ImportPath}};{{join .Imports " "}};{{join .Deps " "}}`, "./...")
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list in %s: %v", dir, err)
		}
		for line := range strings.Lines(string(out)) {
			parts := strings.Split(strings.TrimSpace(line), ";")
			pkgs = append(pkgs, goPackage{below(parts[0]), strings.Fields(parts[1]), strings.Fields(parts[2])})
		}
	}
	if len(pkgs) < 10 {
		t.Fatalf("only %d packages were found", len(pkgs))
	}
	return pkgs
}

// below returns the path of a package of the module below it.
func below(pkg string) string {
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}

// fits reports whether a package is one of those that patterns name, as path.Match does;
// a * alone is every package.
func fits(pkg, patterns string) bool {
	return slices.ContainsFunc(strings.Fields(patterns), func(p string) bool {
		match, err := path.Match(p, pkg)
		return p == "*" || match && err == nil
	})
}

// rowOf returns the first row of arrows that fits a package, with $ replaced.
func rowOf(pkg string) (row int, may string, ok bool) {
	for i, a := range arrows {
		if match, err := path.Match(a.pkg, pkg); err != nil || !match {
			continue
		}
		star := slices.Index(strings.Split(a.pkg, "/"), "*")
		if star < 0 {
			return i, a.may, true
		}
		return i, strings.ReplaceAll(a.may, "$", strings.Split(pkg, "/")[star]), true
	}
	return 0, "", false
}

// Nothing imports upward. A package without a row fails, and so does a row without a
// package.
func TestArrows(t *testing.T) {
	used := make(map[int]bool)
	for _, pkg := range list(t) {
		row, may, ok := rowOf(pkg.name)
		if !ok {
			t.Errorf("%s has no row in arrows: say what it may import", pkg.name)
			continue
		}
		used[row] = true
		for _, imp := range pkg.imports {
			if (imp == module || strings.HasPrefix(imp, module+"/")) && !fits(below(imp), may) {
				t.Errorf("%s imports %s", pkg.name, below(imp))
			}
		}
		for _, dep := range pkg.deps {
			for _, r := range reach {
				if (dep == r.dep || strings.HasPrefix(dep, r.dep+"/")) && !fits(pkg.name, r.who) && module+"/"+pkg.name != r.dep {
					t.Errorf("%s depends on %s", pkg.name, dep)
				}
			}
		}
	}
	for i, a := range arrows {
		if !used[i] {
			t.Errorf("no package is %s", a.pkg)
		}
	}
}

// sources parses the module's Go files.
func sources(t *testing.T, visit func(path string, fset *token.FileSet, file *ast.File)) {
	t.Helper()
	testkit.NotUnderRace(t) // nothing runs beside another thing, and it is read slowly
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

// A package that imports testing in a file that is no test is a kit, and lies below
// internal/testkit. TestArrows sees to it that no program links a kit.
func TestKitsLieInOnePlace(t *testing.T) {
	kits := 0
	sources(t, func(path string, fset *token.FileSet, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, imp := range file.Imports {
			if name := strings.Trim(imp.Path.Value, `"`); name != "testing" && !strings.HasPrefix(name, "testing/") {
				continue
			}
			kits++
			if !strings.HasPrefix(filepath.ToSlash(path), "internal/testkit/") {
				t.Errorf("%v: only kits below internal/testkit import %s", fset.Position(imp.Pos()), imp.Path.Value)
			}
		}
	})
	if kits == 0 {
		t.Error("no kit was found")
	}
}

// Each HTTP server has limits, because one function makes them all.
func TestHTTPServersHaveLimits(t *testing.T) {
	const maker = "cmd/internal/cmdutil/httpserver.go"
	made := false
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "internal/testkit") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, way := range []string{"http.Server{", "new(http.Server)", "http.ListenAndServe", "http.Serve("} {
			switch has := strings.Contains(string(text), way); {
			case has && filepath.ToSlash(path) == maker:
				made = true
			case has:
				t.Errorf("%s has %s: use cmdutil.HTTPServer", path, way)
			}
		}
		return err
	})
	if err != nil || !made {
		t.Errorf("%s makes a server: %v, %v", maker, made, err)
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

// Tests that open stores know nothing of the user's: the TestMain of their package takes
// away what says where that is.
func TestStoresOfTests(t *testing.T) {
	opens, alone := make(map[string]bool), make(map[string]bool)
	sources(t, func(path string, _ *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !strings.HasSuffix(path, "_test.go") {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok {
				dir := filepath.Dir(path)
				isTest := pkg.Name == "storetest"
				opens[dir] = opens[dir] || isTest || pkg.Name == "embedded" && sel.Sel.Name == "Open"
				alone[dir] = alone[dir] || isTest && (sel.Sel.Name == "Main" || sel.Sel.Name == "Alone")
			}
			return true
		})
	})
	for dir, is := range opens {
		if is && !alone[dir] {
			t.Errorf("%s opens stores, and no TestMain of it calls storetest.Main or Alone", dir)
		}
	}
	if !opens["."] {
		t.Error("not even this package opens stores")
	}
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

// The code in the root's package comment is among what compiles and runs.
func TestPackageDocsCode(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	example, err2 := os.ReadFile("example_test.go")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(string(doc)) {
		code, ok := strings.CutPrefix(line, "//\t")
		if !ok {
			continue
		}
		lines++
		if !strings.Contains(string(example), "\t"+code) {
			t.Errorf("example_test.go does not have the line %q", code)
		}
	}
	if lines == 0 {
		t.Error("the package comment shows no code")
	}
}

// The Go blocks of these pages compile and run: each is a whole function of a file with examples, or a whole such file.
func TestReadmeExample(t *testing.T) {
	var blocks []string
	for _, page := range []string{"README.md", "docs/recipes.md", "docs/from-tally-evals.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		list := strings.Split(string(text), "```go\n")[1:]
		if len(list) != 1 {
			t.Errorf("%s has %d Go examples, want one", page, len(list))
		}
		blocks = append(blocks, list...)
	}
	files, err := filepath.Glob("example*_test.go")
	rooms, err2 := filepath.Glob("stores/*/example*_test.go")
	if err := errors.Join(err, err2); err != nil || len(files) == 0 || len(rooms) == 0 {
		t.Fatalf("%v, %v, %v", files, rooms, err)
	}
	programs := make(map[string]string) // by their text
	for _, name := range append(files, rooms...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, program := range wholes(t, name, string(text)) {
			programs[program] = name
		}
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		if programs[strings.TrimSpace(block)] == "" {
			t.Errorf("no file of examples has this as a function, or is this:\n%s", block)
		}
	}
}

// The README is a front page: it fits in 120 lines of 120 columns, tables apart, and links to each page of docs/ itself or
// through docs/README.md.
func TestFrontPage(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	index, err2 := os.ReadFile("docs/README.md")
	pages, err3 := filepath.Glob("docs/*.md")
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(readme), "\n"), "\n")
	if len(lines) > 120 {
		t.Errorf("README.md has %d lines, want 120 at most", len(lines))
	}
	for i, line := range lines {
		if n := utf8.RuneCountInString(line); n > 120 && !strings.HasPrefix(line, "|") {
			t.Errorf("README.md:%d has %d columns, want 120 at most", i+1, n)
		}
	}
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(index), "("+name+")") {
			t.Errorf("docs/README.md has no link to %s", name)
		}
	}
}

// wholes returns the text of a Go file and that of each of its functions.
func wholes(t *testing.T, name, text string) []string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	list := []string{strings.TrimSpace(text)}
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok {
			list = append(list, text[fset.Position(fn.Pos()).Offset:fset.Position(fn.End()).Offset])
		}
	}
	return list
}

package tallydir_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// T-13: a malformed piece is reported with file and line. All other pieces are imported, and the file is exported
// unchanged.
func TestMalformed(t *testing.T) {
	for _, c := range []struct {
		name, file, content string
		want                string // the problem
		turns               int
	}{
		{"truncated line", "conversation.jsonl", step(0) + "\n" + step(1)[:40], "conversation.jsonl:2: ", 1},
		{"bad line in the middle", "conversation.jsonl", step(0) + "\n{\"a\"}\n\n" + step(1) + "\n", "conversation.jsonl:2: ", 2},
		{"line number counts blank lines", "conversation.jsonl", "\n\n{}\nx", "conversation.jsonl:4: ", 1},
		{"invalid UTF-8", "conversation.jsonl", "{\"a\":\"\xff\"}\n" + step(1), "conversation.jsonl:1: ", 1},
		{"deep nesting", "conversation.jsonl", nested(20_000) + "\n" + step(1), "conversation.jsonl:1: ", 1},
		{"nested as deep as an event takes", "conversation.jsonl", `{"x":` + nested(996) + `}`, "", 1},
		{"nested deeper than an event takes", "conversation.jsonl", `{"x":` + nested(997) + `}`, "conversation.jsonl:1: nested too deep", 0},
		{"null", "conversation.jsonl", "null\n{}", "conversation.jsonl:1: null", 1},
		{"two values", "conversation.jsonl", "{} {}", "conversation.jsonl:1: ", 0},
		{"NUL", "conversation.jsonl", "\x00\n{}", "conversation.jsonl:1: ", 1},
		{"T-14 wrong timestamp", "conversation.jsonl", `{"timestamp":17}`, "conversation.jsonl:1: timestamp", 1},
		{"T-14 no time", "conversation.jsonl", `{"timestamp":"yesterday"}`, "conversation.jsonl:1: timestamp", 1},
		{"wrong output", "conversation.jsonl", step(0) + "\n" + `{"output":{}}`, "conversation.jsonl:2: output", 2},
		{"no object", "conversation.jsonl", "17", "conversation.jsonl:1: not a step", 1},
		{"byte order mark inside", "conversation.jsonl", "{}\n\ufeff{}", "conversation.jsonl:2: ", 1},
		{"broken meta", "meta.json", "{\n\"id\": \n}", "meta.json:3: ", 3},
		{"createdAt of a wrong type", "meta.json", `{"createdAt":17}`, "meta.json: createdAt", 3},
		{"null meta", "meta.json", "null", "meta.json: null", 3},
		{"broken trajectory", "trajectory.meta.json", "{\"version\":01}", "trajectory.meta.json:1: ", 3},
		{"broken traces", "stepTraces.json", "[\n{]", "stepTraces.json:2: ", 3},
		{"traces of a wrong type", "stepTraces.json", "{}", "stepTraces.json: ", 3},
		{"run that is no JSON", "runs/tally/r.json", "PASS", "runs/tally/r.json:1: ", 3},
		{"deep run", "runs/trajectory/r.json", nested(1000), "runs/trajectory/r.json: nested too deep", 3},
		{"empty run", "runs/tally/r.json", "", "runs/tally/r.json:1: unexpected end", 3},
	} {
		t.Run("T-13/"+c.name, func(t *testing.T) {
			st := openStore(t)
			tree := with(smallTree(), conv+c.file, c.content, conv+"stepTraces.json", "-")
			if c.file == "stepTraces.json" {
				tree[conv+c.file] = c.content
			}
			r := mustImport(t, st, writeTree(t, filepath.Join(t.TempDir(), "p"), tree))
			switch {
			case c.want == "" && len(r.Problems) == 0:
			case c.want == "" || len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0].String(), conv+c.want):
				t.Errorf("the problems are %v, want %s", r.Problems, c.want)
			}
			if n := len(load(t, st, "c1").Threads.Turns("main")); n != c.turns {
				t.Errorf("got %d turns, want %d", n, c.turns)
			}
			mustEqual(t, tree, exported(t, st))
		})
	}
}

// T-12, T-25: the writer's own layout, for sessions that were never files.
func TestLiveLayout(t *testing.T) {
	st := openStore(t)
	mustBeClean(t, st, writeTree(t, filepath.Join(t.TempDir(), "p"), smallTree()))
	s := load(t, st, "c1")
	// The same session without the formats of the import.
	s.Ledger.Formats = nil
	got := make(map[string]string)
	for f, err := range layout.Files(t.Context(), st, s) {
		var b strings.Builder
		if err != nil || f.Write(&b) != nil {
			t.Fatal(err)
		}
		got[f.Path] = b.String()
	}
	t.Run("T-25", func(t *testing.T) { mustEqual(t, smallTree(), got) })
	s.Threads["main"].Turns[1].Raw = []byte("{\n  \"a\" : 1\r\n}")
	t.Run("T-12", func(t *testing.T) { // one object a line, without a final line end
		for f := range layout.Files(t.Context(), st, s) {
			var b strings.Builder
			if err := f.Write(&b); err != nil {
				t.Fatal(err)
			}
			if f.Path == conv+"conversation.jsonl" && b.String() != step(0)+"\n{\"a\":1}\n"+step(2) {
				t.Errorf("the lines are %q", b.String())
			}
		}
	})
}

// T-28: unknown files are kept as they are.
func TestStrayFiles(t *testing.T) { t.Run("T-28", testStrayFiles) }

func testStrayFiles(t *testing.T) {
	tree := with(smallTree(), conv+"runs/old-report.json", `{"perTargetResults":[]}`, conv+"runs/tally/notes.md", "# n\r\n", conv+"bin/x", "\x00\xff", conv+"empty", "",
		"README.md", "root", "conversations/index.html", "<p>", conv+"runs/tally/deeper/r.json", "{}")
	st, dir := openStore(t), filepath.Join(t.TempDir(), "p")
	r := mustBeClean(t, st, writeTree(t, dir, tree))
	if r.Files != (layouts.Files{Exact: 5, Derived: 1, Whole: 7}) {
		t.Errorf("the files are %+v", r.Files)
	}
	if runs := load(t, st, "c1").Ledger.Runs; len(runs) != 2 {
		t.Errorf("got %d runs, want 2", len(runs))
	}
	mustEqual(t, tree, exported(t, st))
	mustExport(t, st, filepath.Join(dir, "..", "one"), layouts.ExportOptions{Session: "c1"})
	mustEqual(t, with(tree, "README.md", "-", "conversations/index.html", "-"), readTree(t, filepath.Join(dir, "..", "one")))
}

// Links are reported and not followed. Folders of others are left alone. The executable and private modes are kept.
func TestLinksAndModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has other links and modes of files")
	}
	st, dir := openStore(t), filepath.Join(t.TempDir(), "p")
	writeTree(t, dir, with(smallTree(), conv+"run.sh", "#!", conv+"runs/tally/private.json", "{}", "src/x.go", "no", "secret", "s"))
	for name, mode := range map[string]os.FileMode{conv + "run.sh": 0o755, conv + "runs/tally/private.json": 0o600, "secret": 0o600, conv + "conversation.jsonl": 0o600, conv + "meta.json": 0o444} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{conv + "link", conv + "runs/tally/link.json", "conversations/link", "link"} {
		if err := os.Symlink("/etc", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	r := mustImport(t, st, dir)
	if len(r.Problems) != 4 || len(r.Notes) != 1 || r.Notes[0].File != "src" {
		t.Errorf("the problems are %v, the notes %v", r.Problems, r.Notes)
	}
	out := t.TempDir()
	mustExport(t, st, out, layouts.ExportOptions{})
	for name, want := range map[string]os.FileMode{conv + "run.sh": 0o755, conv + "runs/tally/private.json": 0o600, "secret": 0o600, conv + "conversation.jsonl": 0o600, conv + "meta.json": 0o644} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: the mode is %v, error %v, want %v", name, info.Mode(), err, want)
		}
	}
	if err := os.Chmod(filepath.Join(dir, conv+"run.sh"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := mustImport(t, st, dir); r.Changed != 1 {
		t.Errorf("a changed mode: %+v", r)
	}
}

// A file that was kept whole is exported until the session changes. Then the state is exported, and the report notes
// it.
func TestMovedOn(t *testing.T) {
	st := openStore(t)
	tree := with(smallTree(), conv+"conversation.jsonl", step(0)+"\n{\n"+step(1), conv+"stepTraces.json", "-")
	mustImport(t, st, writeTree(t, filepath.Join(t.TempDir(), "p"), tree))
	live(t, st, "c1", anyOffset, appended(`{"x": "y"}`))
	out := t.TempDir()
	r := mustExport(t, st, out, layouts.ExportOptions{})
	if len(r.Notes) != 1 || r.Notes[0].File != conv+"conversation.jsonl" {
		t.Errorf("the notes are %v", r.Notes)
	}
	mustEqual(t, with(tree, conv+"conversation.jsonl", step(0)+"\n"+step(1)+"\n"+`{"x": "y"}`), readTree(t, out))
	if again := mustExport(t, st, out, layouts.ExportOptions{}); again.Written != 0 || again.Kept != r.Written {
		t.Errorf("a second export reports %+v, the first %+v", again, r)
	}
}

// A value that is too large for an event is stored by reference, a file that is too large for a value in pieces.
func TestLarge(t *testing.T) {
	testkit.OnlyFull(t, "TestOddFolders has small files")
	testkit.NotUnderRace(t)
	large := `{"text":"` + strings.Repeat("0123456789abcdef", 20<<20/16) + `"}`
	t.Run("turn", func(t *testing.T) {
		st, dir := openStore(t), filepath.Join(t.TempDir(), "p")
		tree := map[string]string{conv + "conversation.jsonl": step(0) + "\n" + large + "\n" + step(1)}
		r := mustBeClean(t, st, writeTree(t, dir, tree))
		mustEqual(t, tree, exported(t, st))
		if again := mustBeClean(t, st, dir); again.Events != 0 || r.Events != 4 {
			t.Errorf("the imports added %d and %d events", r.Events, again.Events)
		}
	})
	t.Run("pieces", func(t *testing.T) {
		st, dir := narrow{openStore(t)}, filepath.Join(t.TempDir(), "p")
		tree := map[string]string{conv + "conversation.jsonl": step(0) + "\n" + large[:9<<20] + "\n" + step(1), conv + "runs/tally/r.json": large[:9<<20], conv + "x": large[1 : 9<<20]}
		r, err := layout.Import(t.Context(), st, writeTree(t, dir, tree), layouts.ImportOptions{})
		if err != nil || len(r.Problems) != 2 || r.Problems[0].Line != 2 || r.Files.Whole != 3 {
			t.Fatalf("got %+v, error %v", r, err)
		}
		mustEqual(t, tree, exported(t, st.store))
	})
}

// narrow is a store that stores smaller values by reference.
type narrow struct{ store }

func (st narrow) Loader() *projector.Loader {
	return &projector.Loader{Source: st.Log, MaxValue: 8 << 20}
}

// Progress only grows, and ends at the report's figures.
func TestProgress(t *testing.T) {
	var seen []layouts.Progress
	dir := writeTree(t, filepath.Join(t.TempDir(), "p"), with(smallTree(), "conversations/c2/x", "y"))
	r, err := layout.Import(t.Context(), openStore(t), dir, layouts.ImportOptions{Progress: func(p layouts.Progress) { seen = append(seen, p) }})
	if err != nil || len(seen) == 0 {
		t.Fatal(err, seen)
	}
	if last := seen[len(seen)-1]; last.Of != 2 || last.Sessions != 2 || last.Events != r.Events || last.Files != r.Files.Total() || last.Bytes != r.Bytes {
		t.Errorf("the last progress is %+v, the report %+v", last, r)
	}
	if !slices.IsSortedFunc(seen, func(a, b layouts.Progress) int { return a.Events - b.Events }) {
		t.Errorf("the number of events decreases: %+v", seen)
	}
}

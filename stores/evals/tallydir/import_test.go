package tallydir_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/gentree"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

// with returns a copy of a tree with changed files; "-" removes one.
func with(tree map[string]string, changes ...string) map[string]string {
	tree = maps.Clone(tree)
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] == "-" {
			delete(tree, changes[i])
		} else {
			tree[changes[i]] = changes[i+1]
		}
	}
	return tree
}

// replaceTree replaces the content of a folder by another tree.
func replaceTree(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	writeTree(t, dir, files)
}

func load(t testing.TB, st store, id string) *projector.Session {
	t.Helper()
	s, err := st.Loader().Session(t.Context(), events.Session(st.Name, id), 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An import makes one event for each step, and one event for each other fact.
func TestVocabulary(t *testing.T) {
	st := openStore(t)
	r := mustBeClean(t, st, writeTree(t, filepath.Join(t.TempDir(), "proj"), smallTree()))
	if r.Events != 7 || r.Added != 1 || r.Files != (layouts.Files{Exact: 5, Derived: 1}) {
		t.Errorf("the report is %+v", r)
	}
	var types []string
	for rec, err := range st.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, strings.TrimSuffix(strings.TrimPrefix(rec.Type, "tally."), ".v1"))
	}
	want := []string{"session.created", "session.updated", "turn.appended", "turn.appended", "turn.appended", "run.finished", "run.finished"}
	if !slices.Equal(types, want) {
		t.Errorf("events %v, want %v", types, want)
	}
	s := load(t, st, "c1")
	if turn := s.Threads.Turns("main")[1]; string(turn.Raw) != step(1) || turn.Timestamp != "2026-01-23T12:35:41.000Z" {
		t.Errorf("the turn is %+v", turn)
	}
	tally, trajectory := s.Ledger.Run(events.RunRef{Kind: "tally", ID: "run-1-a"}), s.Ledger.Run(events.RunRef{Kind: "trajectory", ID: "r-2"})
	if tally.Last().Outcome != "completed" || tally.Last().FinishedAt != "2026-01-23T12:37:18.912Z" || trajectory.Last().Outcome != "stopped:max-turns" {
		t.Errorf("the runs are %+v and %+v", tally.Last(), trajectory.Last())
	}
	if o := s.Ledger.Origin(); o == nil || o.Root != "proj" || o.Birth != "2026-01-23T12:27:07.775Z" || o.Format != tallydir.Format {
		t.Errorf("the origin is %+v", o)
	}
}

// One folder is imported, then another recording in its place, then the first again. Each export equals the folder
// byte for byte.
func TestAgainAndAgain(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	a := smallTree()
	for name, b := range map[string]map[string]string{
		"extended":           with(a, conv+"conversation.jsonl", a[conv+"conversation.jsonl"]+"\n"+step(3), conv+"stepTraces.json", tracesOf(4)),
		"shortened":          with(a, conv+"conversation.jsonl", step(0), conv+"stepTraces.json", tracesOf(1)),
		"other middle":       with(a, conv+"conversation.jsonl", step(0)+"\n"+step(2)+"\n"+step(2)),
		"emptied":            with(a, conv+"conversation.jsonl", "", conv+"stepTraces.json", "[]"),
		"no steps":           with(a, conv+"conversation.jsonl", "-"),
		"only steps":         {conv + "conversation.jsonl": step(0) + "\n" + step(1) + "\n" + step(2)},
		"white space":        with(a, conv+"conversation.jsonl", strings.ReplaceAll(a[conv+"conversation.jsonl"], `"input":`, `"input": `)),
		"final newlines":     with(a, conv+"conversation.jsonl", a[conv+"conversation.jsonl"]+"\n", conv+"meta.json", a[conv+"meta.json"]+"\n", conv+"stepTraces.json", tracesOf(3)+"\n"),
		"CRLF":               with(a, conv+"conversation.jsonl", strings.ReplaceAll(a[conv+"conversation.jsonl"], "\n", "\r\n")),
		"byte order marks":   with(a, conv+"conversation.jsonl", "\ufeff"+a[conv+"conversation.jsonl"], conv+"meta.json", "\ufeff{}", conv+"stepTraces.json", "\ufeff"+tracesOf(3)),
		"bad line":           with(a, conv+"conversation.jsonl", step(0)+"\n{\n"+step(2)),
		"edited traces":      with(a, conv+"stepTraces.json", "[\n  {\n    \"turnIndex\": 7\n  }\n]"),
		"broken traces":      with(a, conv+"stepTraces.json", "[\n  {\n"),
		"compact traces":     with(a, conv+"stepTraces.json", `[{"a": 1},{}]`),
		"no traces":          with(a, conv+"stepTraces.json", "-"),
		"no trajectory":      with(a, conv+"trajectory.meta.json", "-"),
		"null trajectory":    with(a, conv+"trajectory.meta.json", "null"),
		"broken trajectory":  with(a, conv+"trajectory.meta.json", "{"),
		"other meta":         with(a, conv+"meta.json", `{"id":"c1","createdAt":"2027-01-01T00:00:00.000Z"}`),
		"no meta":            with(a, conv+"meta.json", "-"),
		"broken meta":        with(a, conv+"meta.json", "{"),
		"other run":          with(a, conv+"runs/tally/run-1-a.json", "{}\n"),
		"no run":             with(a, conv+"runs/tally/run-1-a.json", "-"),
		"broken run":         with(a, conv+"runs/tally/run-1-a.json", "{}}"),
		"run of other kind":  with(a, conv+"runs/tally/r-2.json", "{}"),
		"run moved":          with(a, conv+"runs/tally/run-1-a.json", "-", conv+"runs/run-1-a.json", "{}"),
		"stray files":        with(a, conv+"notes.txt", "x", "README.md", "y", "conversations/z", "\xff"),
		"another session":    with(a, "conversations/c2/meta.json", "{}"),
		"everything at once": {conv + "conversation.jsonl": "null\n" + step(1) + "\r\n", conv + "meta.json": " {}", conv + "stepTraces.json": "[]\r\n", conv + "runs/tally/x.json": "[", "f": ""},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Sample(t, 3)
			st, dir := openStore(t), filepath.Join(t.TempDir(), "proj")
			for i, tree := range []map[string]string{a, b, a, b, a} {
				replaceTree(t, dir, tree)
				r := mustImport(t, st, dir)
				if len(r.Refused) > 0 || r.Events == 0 && (name != "another session" || i < 2) {
					t.Errorf("import %d: got %d events, refused %v, problems %v", i, r.Events, r.Refused, r.Problems)
				}
				if again := mustImport(t, st, dir); again.Events != 0 {
					t.Errorf("the repetition of import %d added %d events", i, again.Events)
				}
				if name == "another session" && i > 1 {
					continue // a missing folder removes nothing
				}
				mustEqual(t, tree, exported(t, st))
			}
		})
	}
}

// T-37: equal ids in two namespaces are two sessions. From two folders, the second is refused, and the first stays as
// it is.
func TestOrigins(t *testing.T) {
	a := smallTree()
	b := with(a, conv+"conversation.jsonl", step(2), conv+"meta.json", `{"id":"c1","createdAt":"2020-01-01T00:00:00.000Z"}`, "conversations/c2/notes", "x")
	t.Run("T-37/namespaces", func(t *testing.T) {
		st := openStore(t)
		second := store{Log: st.Log, Name: "second"}
		mustBeClean(t, st, writeTree(t, filepath.Join(t.TempDir(), "a"), a))
		r := mustBeClean(t, second, writeTree(t, filepath.Join(t.TempDir(), "b"), with(b, conv+"stepTraces.json", "-")))
		if r.Added != 2 {
			t.Errorf("the report is %+v", r)
		}
		mustEqual(t, a, exported(t, st))
		mustEqual(t, with(b, conv+"stepTraces.json", "-"), exported(t, second))
	})
	t.Run("T-37/refused", func(t *testing.T) {
		st := openStore(t)
		mustBeClean(t, st, writeTree(t, filepath.Join(t.TempDir(), "p"), a))
		dir := writeTree(t, filepath.Join(t.TempDir(), "p"), b)
		r := mustImport(t, st, dir)
		if !slices.Equal(r.Refused, []string{"c1"}) || r.Added != 1 || len(r.Problems) != 1 {
			t.Fatalf("the report is %+v", r)
		}
		if reason := r.Problems[0].String(); !strings.Contains(reason, "--namespace") || !strings.Contains(reason, "--merge") || !strings.Contains(reason, "conversations/c1") {
			t.Errorf("the problem is %q", reason)
		}
		mustEqual(t, with(a, "conversations/c2/notes", "x"), exported(t, st))
		if _, err := (tallydir.Layout{}).Import(t.Context(), st, dir, layouts.ImportOptions{Merge: true}); err != nil {
			t.Fatal(err)
		}
		mustEqual(t, b, exported(t, st))
	})
	t.Run("moved", func(t *testing.T) { // the same beginning means the same origin, with its first name
		st := openStore(t)
		mustBeClean(t, st, writeTree(t, filepath.Join(t.TempDir(), "old"), with(a, "README", "1")))
		changed := with(a, conv+"conversation.jsonl", step(0), conv+"stepTraces.json", tracesOf(1), "README", "2", "conversations/c0/x", "y")
		if r := mustBeClean(t, st, writeTree(t, filepath.Join(t.TempDir(), "new"), changed)); r.Root != "old" {
			t.Errorf("the root is %q", r.Root)
		}
		mustEqual(t, changed, exported(t, st))
	})
	t.Run("equal", func(t *testing.T) { // equal content is never refused
		st := openStore(t)
		mustBeClean(t, st, writeTree(t, filepath.Join(t.TempDir(), "a"), with(a, conv+"meta.json", "{}")))
		if r := mustImport(t, st, writeTree(t, filepath.Join(t.TempDir(), "b"), with(a, conv+"meta.json", "{}"))); r.Events != 0 || len(r.Refused) > 0 {
			t.Errorf("the report is %+v", r)
		}
	})
}

// live appends an event from a source other than an import.
func live(t testing.TB, st store, id string, expect log.Expect, p events.Payload) {
	t.Helper()
	e, err := events.New("urn:test:live", events.Session(st.Name, id), p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Append(t.Context(), e.Subject, expect, e); err != nil {
		t.Fatal(err)
	}
}

func appended(turn string) *events.TurnAppended {
	return &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(turn)}}}
}

// A repeated import does not undo the changes of other writers.
func TestLiveChanges(t *testing.T) {
	a := smallTree()
	longer := with(a, conv+"conversation.jsonl", a[conv+"conversation.jsonl"]+"\n"+step(3), conv+"stepTraces.json", tracesOf(4))
	for _, c := range []struct {
		name    string
		live    events.Payload
		next    map[string]string
		refused bool
	}{
		{"turns, folder as it was", appended(step(3)), a, true},
		{"turns, folder has them too", appended(step(3)), longer, false},
		{"turns, folder has others", appended(step(4)), longer, true},
		{"rewound, folder as it was", &events.SessionRewound{To: 3}, a, true},
		{"rewound, folder extended", &events.SessionRewound{To: 4}, longer, true},
		{"run, folder as it was", &events.RunFinished{Run: events.RunRef{Kind: "tally", ID: "run-1-a"}, Outcome: "completed", Result: events.Raw("1")}, a, true},
		{"another run", &events.RunFinished{Run: events.RunRef{Kind: "tally", ID: "run-9"}, Outcome: "completed", Result: events.Raw("1")}, longer, false},
		{"title, folder extended", &events.SessionUpdated{Set: events.Fields{{Name: "title", Value: events.Raw(`"t"`)}}}, longer, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, dir := openStore(t), filepath.Join(t.TempDir(), "p")
			mustBeClean(t, st, writeTree(t, dir, a))
			live(t, st, "c1", log.Since(load(t, st, "c1").Offset(), events.TypeTurnAppended), c.live)
			before := load(t, st, "c1").Threads.Hash()
			replaceTree(t, dir, c.next)
			r := mustImport(t, st, dir)
			if refused := len(r.Refused) == 1; refused != c.refused {
				t.Fatalf("the import refused %v, problems %v", r.Refused, r.Problems)
			}
			if c.refused && (r.Events != 0 || load(t, st, "c1").Threads.Hash() != before) {
				t.Errorf("a refused session was changed: %+v", r)
			}
			if r, err := (tallydir.Layout{}).Import(t.Context(), st, dir, layouts.ImportOptions{Merge: true}); err != nil || len(r.Refused) > 0 {
				t.Fatal(r, err)
			}
			got := exported(t, st)
			delete(got, conv+"runs/tally/run-9.json")
			mustEqual(t, c.next, got)
		})
	}
	t.Run("not imported", func(t *testing.T) {
		st := openStore(t)
		live(t, st, "c1", log.Any, appended(`{"a": 1}`))
		if r := mustImport(t, st, writeTree(t, filepath.Join(t.TempDir(), "p"), a)); !slices.Equal(r.Refused, []string{"c1"}) {
			t.Errorf("the report is %+v", r)
		}
	})
}

// A dry run reports the additions of an import, and adds nothing.
func TestDryRun(t *testing.T) {
	st, dir := openStore(t), filepath.Join(t.TempDir(), "p")
	writeTree(t, dir, with(smallTree(), conv+"notes", "x", "README", "y", conv+"conversation.jsonl", "{\n"+step(1)))
	dry, err := (tallydir.Layout{}).Import(t.Context(), st, dir, layouts.ImportOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if head, err := st.Head(t.Context()); head != 0 || err != nil {
		t.Errorf("the head after a dry run is %v, error %v", head, err)
	}
	imported := mustImport(t, st, dir)
	if dry.Events != imported.Events || dry.Files != imported.Files || len(dry.Problems) != len(imported.Problems) || dry.Added != imported.Added {
		t.Errorf("the dry run reports\n%+v\nwant\n%+v", dry, imported)
	}
}

// Concurrent imports of one folder add the same events as one import.
func TestConcurrentImports(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	if _, err := gentree.Write(dir, gentree.Options{Sessions: 4, Turns: 700, TurnBytes: 100}); err != nil {
		t.Fatal(err)
	}
	alone := openStore(t)
	want := mustBeClean(t, alone, dir).Events
	st := openStore(t)
	reports := make([]layouts.Report, 4)
	errs := make([]error, len(reports))
	var all sync.WaitGroup
	for i := range reports {
		all.Go(func() {
			reports[i], errs[i] = (tallydir.Layout{}).Import(t.Context(), st, dir, layouts.ImportOptions{})
		})
	}
	all.Wait()
	added := 0
	for i, r := range reports {
		if errs[i] != nil || len(r.Problems) > 0 {
			t.Fatalf("importer %d: %v, %v", i, errs[i], r.Problems)
		}
		added += r.Events
	}
	if head, err := st.Head(t.Context()); err != nil || int(head) != want || added != want {
		t.Errorf("got %d events in the log (error %v) and %d reported, want %d", head, err, added, want)
	}
	mustEqual(t, readTree(t, dir), exported(t, st))
}

// cut is a target that fails after some appends, like a killed process.
type cut struct {
	store
	left atomic.Int64
}

var errCut = errors.New("cut")

func (c *cut) Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error) {
	if c.left.Add(-1) < 0 {
		return log.Ack{}, errCut
	}
	return c.store.Append(ctx, sub, expect, evs...)
}

// The next import completes an interrupted one, wherever it stopped.
func TestCutOff(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	if _, err := gentree.Write(dir, gentree.Options{Sessions: 2, Turns: 900, TurnBytes: 50}); err != nil {
		t.Fatal(err)
	}
	writeTree(t, dir, map[string]string{"conversations/x/notes": "n", "conversations/x/conversation.jsonl": "{\n{}", "README": "r"})
	whole := mustImport(t, openStore(t), dir).Events
	for left := int64(0); ; left++ {
		st := openStore(t)
		c := &cut{store: st}
		c.left.Store(left)
		_, err := (tallydir.Layout{}).Import(t.Context(), c, dir, layouts.ImportOptions{})
		if err == nil {
			break
		}
		if !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		mustImport(t, st, dir)
		if head, err := st.Head(t.Context()); err != nil || int(head) != whole {
			t.Errorf("cut after %d appends: got %d events (error %v), want %d", left, head, err, whole)
		}
		mustEqual(t, readTree(t, dir), exported(t, st))
	}
}

// A path may be the root, the folder with .tally, one conversation, or the folder of all conversations.
func TestPaths(t *testing.T) {
	base := t.TempDir()
	small := smallTree()
	tree := make(map[string]string)
	for name, content := range small {
		tree["proj/.tally/"+name] = content
		tree["proj/.tally/"+strings.Replace(name, "c1", "c2", 1)] = content
	}
	tree["proj/main.go"], tree["proj/.tally/x"] = "not ours", "ours"
	writeTree(t, base, tree)
	for _, c := range []struct {
		path, root string
		sessions   int
		files      int
	}{
		{"proj", "proj", 2, 13}, {"proj/.tally", ".tally", 2, 13}, {"proj/.tally/conversations", ".tally", 2, 13}, {"proj/.tally/conversations/c2", ".tally", 1, 6},
	} {
		st := openStore(t)
		r := mustBeClean(t, st, filepath.Join(base, filepath.FromSlash(c.path)))
		if r.Root != c.root || r.Sessions != c.sessions || r.Files.Total() != c.files {
			t.Errorf("%s: got %+v", c.path, r)
		}
		if again := mustBeClean(t, st, filepath.Join(base, "proj")); again.Root != c.root {
			t.Errorf("%s: the root of a second import is %q", c.path, again.Root)
		}
	}
	for _, path := range []string{base, filepath.Join(base, "none"), filepath.Join(base, "proj", "main.go")} {
		if _, err := (tallydir.Layout{}).Import(t.Context(), openStore(t), path, layouts.ImportOptions{}); err == nil {
			t.Errorf("%s was imported", path)
		}
		if (tallydir.Layout{}).Sniff(path) {
			t.Errorf("Sniff accepted %s", path)
		}
	}
	st := openStore(t)
	r, err := (tallydir.Layout{}).Import(t.Context(), st, filepath.Join(base, "proj"), layouts.ImportOptions{Only: []string{"c2"}})
	if err != nil || r.Sessions != 1 || fmt.Sprint(load(t, st, "c2").Subject) != "session/c2" {
		t.Errorf("import of c2 alone: %+v, error %v", r, err)
	}
}

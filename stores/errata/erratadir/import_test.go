package erratadir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/erratadir"
)

const (
	one     = "sessions/ses_1/"
	oneMeta = one + "session_metadata.json"
	oneCont = one + "session_content.json"
)

// types lists the event types of a session.
func types(t testing.TB, st store, id string) []string {
	t.Helper()
	var list []string
	for rec, err := range st.Read(t.Context(), events.Range{Subject: events.Session(st.Name, id)}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.TrimSuffix(strings.TrimPrefix(rec.Type, "tally."), ".v1"))
	}
	return list
}

// An import makes the events that the panel's own calls would have made: the turns of a run, its result, its
// annotation, its costs.
func TestVocabulary(t *testing.T) {
	st := openStore(t)
	files := layouttest.Change(rootTree(), one+"checkpoint.json", marshal(checkpoint{Prompt: "p", Timestamp: at(40), AdapterIDs: []string{"gpt"}, Responses: []response{{ModelID: "gpt"}}}))
	mustBeClean(t, st, folder(t, files))
	want := []string{"session.created", "turn.appended", "run.finished", "run.annotated", "cost.accrued", "cost.accrued",
		"turn.appended", "run.finished", "cost.accrued", "cost.accrued", "run.finished", "cost.accrued", "cost.accrued", "session.rewound",
		"turn.appended", "run.finished", "cost.accrued", "cost.accrued", "checkpoint.saved"}
	if got := types(t, st, "ses_1"); !slices.Equal(got, want) {
		t.Errorf("events\n%v, want\n%v", got, want)
	}
	s := load(t, st, "ses_1")
	if s.Ledger.Kind != events.KindPanel || s.Ledger.Origin().Birth == "" || len(s.Threads.Turns("claude")) != 6 || len(s.Threads.Turns("gpt")) != 4 {
		t.Errorf("kind %q, origin %+v, threads %v", s.Ledger.Kind, s.Ledger.Origin(), s.Threads.Names())
	}
	run := s.Ledger.Runs[0]
	if run.Kind != "panel" || !strings.HasPrefix(run.ID, "run_") || run.Selected != "gpt" || run.Rating != "good" || run.Note != "nice" || run.Last().Schema != "errata/panel" {
		t.Errorf("the run is %+v", run)
	}
	if spent := s.Ledger.Spent(); spent.USD != "0.0015" || spent.Tokens.Input != 84 || spent.Events != 8 {
		t.Errorf("the costs are %+v", spent)
	}
	if c := s.Ledger.Checkpoints[0]; c.Kind != events.CheckpointResume || c.Cleared || c.Prompt != "p" {
		t.Errorf("the checkpoint is %+v", c)
	}
	if p := load(t, st, "prompts"); p.Ledger.Kind != events.KindPrompts || len(p.Threads.Turns("prompts")) != 3 || string(p.Threads.Turns("prompts")[1].Raw) != `"second"` {
		t.Errorf("the threads of the prompts are %+v", p.Threads)
	}
	for hash, want := range map[string]string{"rcp_1": "# R\nversion: 1\n", "cfg_v1_0": "{\n    \"name\": \"old\"\n  }"} {
		if d, err := st.Loader().Document(t.Context(), events.Document(st.Name, "recipe", hash), 0); err != nil || string(d.Data) != want {
			t.Errorf("the recipe %s is %+v, error %v", hash, d, err)
		}
	}
	if h := load(t, st, "history"); len(h.Threads.Turns("m")) != 2 || h.Threads["n"] == nil {
		t.Errorf("the threads of the history are %+v", h.Threads)
	}
}

// A model that was rated bad does not win, even if the file selects it.
func TestRatedBad(t *testing.T) {
	st := openStore(t)
	s := newSession("ses_1", "m", "n").ask("q", "a", "b").last(func(s *summary) { s.Selected, s.Rating = "m", "bad" })
	mustBeClean(t, st, folder(t, s.files()))
	if run := load(t, st, "ses_1").Ledger.Runs[0]; run.Selected != "" || run.Rating != "bad" || !slices.Equal(run.Tags, []string{"rated:m"}) {
		t.Errorf("E-14: the run is %+v", run)
	}
	mustEqual(t, s.files(), exported(t, st))
}

// If the file no longer has an annotation, the next import removes it from the session. Other annotations stay.
func TestSaidNoMore(t *testing.T) {
	st, dir := openStore(t), folder(t, two("ses_1").files())
	mustBeClean(t, st, dir)
	type said struct{ selected, rating, note string }
	now := func() said {
		run := load(t, st, "ses_1").Ledger.Runs[0]
		return said{run.Selected, run.Rating, run.Note}
	}
	if have, want := now(), (said{"gpt", "good", "nice"}); have != want {
		t.Fatalf("the imported annotation is %+v, want %+v", have, want)
	}
	s := two("ses_1")
	for _, c := range []struct {
		change func(*summary)
		want   said
	}{
		{func(s *summary) { s.Note = "" }, said{"gpt", "good", ""}},
		{func(s *summary) { s.Rating = "" }, said{"gpt", "", ""}},
		{func(s *summary) { s.Selected = "" }, said{"", "", ""}},
		{func(s *summary) { s.Selected, s.Rating, s.Note = "gpt", "good", "nice" }, said{"gpt", "good", "nice"}},
		{func(s *summary) { s.Selected, s.Rating, s.Note = "", "", "" }, said{"", "", ""}},
	} {
		c.change(&s.meta.Runs[0])
		replaceTree(t, dir, s.files())
		mustBeClean(t, st, dir)
		if have := now(); have != c.want {
			t.Errorf("after the next import: %+v, want %+v", have, c.want)
		}
		mustEqual(t, s.files(), exported(t, st))
	}
}

// One folder is imported, then another in its place, then the first again. Each export equals the folder byte for
// byte, and nothing is counted twice.
func TestAgainAndAgain(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	a := layouttest.Change(two("ses_1").files(), one+"recipe.md", "# R\nversion: 1\n", "prompt_history.jsonl", "\"a\"\n\"b\"\n")
	longer := two("ses_1").ask("fifth", "a5", "b5")
	for name, b := range map[string]map[string]string{
		"extended":           layouttest.Change(a, oneMeta, longer.files()[oneMeta], oneCont, longer.files()[oneCont]),
		"annotated":          layouttest.Change(a, oneMeta, marshal(two("ses_1").last(func(s *summary) { s.Note = "x" }).meta)),
		"rewound":            layouttest.Change(a, oneMeta, two("ses_1").rewind().files()[oneMeta], oneCont, two("ses_1").rewind().files()[oneCont]),
		"cleared":            layouttest.Change(a, oneCont, marshal(originalContent{SessionID: "ses_1", Runs: two("ses_1").content.Runs})),
		"compacted":          layouttest.Change(a, oneCont, marshal(originalContent{SessionID: "ses_1", Runs: two("ses_1").content.Runs, Histories: map[string][]originalTurn{"gpt": {{"user", "so far"}}}})),
		"fewer runs":         layouttest.Change(a, oneMeta, newSession("ses_1", "claude", "gpt").files()[oneMeta]),
		"other runs":         newSession("ses_1", "x").ask("y", "z").files(),
		"no content":         layouttest.Change(a, oneCont, "-"),
		"no metadata":        layouttest.Change(a, oneMeta, "-"),
		"corrupt content":    layouttest.Change(a, oneCont, a[oneCont][:100]),
		"corrupt metadata":   layouttest.Change(a, oneMeta, "{"),
		"both corrupt":       layouttest.Change(a, oneMeta, "", oneCont, "[]"),
		"no recipe":          layouttest.Change(a, one+"recipe.md", "-"),
		"other recipe":       layouttest.Change(a, one+"recipe.md", "# S\nversion: 1\n"),
		"same hash":          layouttest.Change(a, one+"recipe.md", "# R\nversion: 1\n\n## Models\n- m\n"),
		"unfinished":         layouttest.Change(a, one+"checkpoint.json", marshal(checkpoint{Prompt: "p", Timestamp: at(9)})),
		"bad checkpoint":     layouttest.Change(a, one+"checkpoint.json", "x"),
		"fewer prompts":      layouttest.Change(a, "prompt_history.jsonl", "\"a\"\n"),
		"other prompts":      layouttest.Change(a, "prompt_history.jsonl", "\"c\"\n\"b\""),
		"bad prompts":        layouttest.Change(a, "prompt_history.jsonl", "\"a\"\n{}\n\n\"b\"\n"),
		"stray files":        layouttest.Change(a, one+"x/y", "1", "z", "2", "recipes/r.md", "3"),
		"final newlines":     layouttest.Change(a, oneMeta, a[oneMeta]+"\n", oneCont, a[oneCont]+"\r\n"),
		"a thread of null":   layouttest.Change(a, oneCont, strings.Replace(a[oneCont], `"histories":{`, `"histories":{"a":null,`, 1)),
		"content head":       layouttest.Change(a, oneCont, strings.Replace(a[oneCont], `"session_id":"ses_1",`, ``, 1)),
		"everything at once": {oneMeta: "[", oneCont: "\ufeff{}", "prompt_history.jsonl": "\r\n\"x\"", one + "recipe.md": "", one + "checkpoint.json": "null", "history.json": "{\"m\":[]}"},
	} {
		t.Run(name, func(t *testing.T) {
			st, dir := openStore(t), filepath.Join(t.TempDir(), "data")
			spent := make(map[int]projector.Total)
			for i, tree := range []map[string]string{a, b, a, b, a} {
				replaceTree(t, dir, tree)
				if r := mustImport(t, st, dir); len(r.Refused) > 0 || r.Events == 0 {
					t.Errorf("import %d: got %d events, refused %v, problems %v", i, r.Events, r.Refused, r.Problems)
				}
				if again := mustImport(t, st, dir); again.Events != 0 {
					t.Errorf("the repetition of import %d added %d events", i, again.Events)
				}
				want := tree
				if name == "other runs" && i > 0 {
					want = layouttest.Change(want, "prompt_history.jsonl", a["prompt_history.jsonl"]) // a missing session stays
				}
				if name == "everything at once" && i > 1 {
					want = layouttest.Change(want, "history.json", b["history.json"])
				}
				mustEqual(t, want, exported(t, st))
				spent[i] = load(t, st, "ses_1").Ledger.Spent()
			}
			if spent[1] != spent[2] || spent[2] != spent[4] {
				t.Errorf("the costs are %+v", spent)
			}
		})
	}
}

// E-37: a content file that cannot be parsed removes nothing from the store, and is kept itself.
func TestCorruptContent(t *testing.T) {
	files := two("ses_1").files()
	for name, bad := range map[string]string{"cut": files[oneCont][:200], "empty": "", "not UTF-8": "{\"runs\":[],\"x\":\"\xff\"}", "array": "[]", "runs": `{"runs":{}}`, "history": "{\n\"histories\":{\"a\":1}}", "twice": `{"runs":[],"runs":[]}`} {
		t.Run("E-37/"+name, func(t *testing.T) {
			st, dir := openStore(t), folder(t, files)
			mustBeClean(t, st, dir)
			before := load(t, st, "ses_1")
			corrupt := layouttest.Change(files, oneCont, bad)
			replaceTree(t, dir, corrupt)
			r := mustImport(t, st, dir)
			if len(r.Problems) != 1 || r.Problems[0].File != oneCont || r.Files != (layouts.Files{Exact: 1, Whole: 1}) {
				t.Errorf("the report is %+v", r)
			}
			after := load(t, st, "ses_1")
			if after.Threads.Hash() != before.Threads.Hash() || len(after.Ledger.Runs) != len(before.Ledger.Runs) {
				t.Error("the import removed stored content")
			}
			mustEqual(t, corrupt, exported(t, st))
			fresh := openStore(t)
			if r := mustImport(t, fresh, dir); len(r.Problems) != 1 {
				t.Errorf("the report is %+v", r)
			}
			mustEqual(t, corrupt, exported(t, fresh))
		})
	}
	st := openStore(t)
	r := mustImport(t, st, folder(t, map[string]string{oneMeta: "{}", oneCont: "{\n\"runs\":[\n}\n"}))
	if len(r.Problems) != 1 || r.Problems[0].Line != 3 {
		t.Errorf("the problems are %v, want one of line 3", r.Problems)
	}
}

// Invalid costs are reported, and not counted.
func TestImpossibleCosts(t *testing.T) {
	st := openStore(t)
	var runs []string
	for i, costs := range []string{`{"m":-1}`, `{"m":"2"}`, `{"m":1e400,"n":3}`, `{"m":1e-7,"n":4}`} {
		runs = append(runs, fmt.Sprintf(`{"timestamp":"2026-01-01T00:00:0%dZ","prompt_hash":"ph_1","prompt_preview":"","models":["m"],"costs_usd":%s}`, i, costs))
	}
	files := map[string]string{oneMeta: `{"id":"ses_1","runs":[` + strings.Join(runs, ",") + `]}`}
	r := mustImport(t, st, folder(t, files))
	if len(r.Problems) != 3 {
		t.Errorf("the problems are %v", r.Problems)
	}
	if spent := load(t, st, "ses_1").Ledger.Spent(); spent.USD != "7.0000001" {
		t.Errorf("the costs are %+v", spent)
	}
	mustEqual(t, files, exported(t, st))
}

// If two folders have the same id, the second is refused, and the first stays as it is.
func TestOrigins(t *testing.T) {
	a := layouttest.Change(two("ses_1").files(), "prompt_history.jsonl", "\"a\"\n", "notes", "1")
	other := newSession("ses_1", "m").ask("q", "a")
	other.meta.CreatedAt = at(50)
	b := layouttest.Change(other.files(), "prompt_history.jsonl", "\"b\"\n", "sessions/ses_2/session_metadata.json", "{}", "notes", "1")
	st := openStore(t)
	mustBeClean(t, st, folder(t, a))
	dir := folder(t, b)
	r := mustImport(t, st, dir)
	if !slices.Equal(r.Refused, []string{"ses_1", "prompts"}) || r.Added != 1 || len(r.Problems) != 2 {
		t.Fatalf("the report is %+v", r)
	}
	if reason := r.Problems[0].String(); !strings.Contains(reason, "--namespace") || !strings.Contains(reason, "--merge") || !strings.Contains(reason, "sessions/ses_1") {
		t.Errorf("the problem is %q", reason)
	}
	mustEqual(t, layouttest.Change(a, "sessions/ses_2/session_metadata.json", "{}"), exported(t, st))
	if r, err := (erratadir.Layout{}).Import(t.Context(), st, dir, layouts.ImportOptions{Merge: true}); err != nil || len(r.Refused) > 0 {
		t.Fatal(r, err)
	}
	mustEqual(t, b, exported(t, st))

	t.Run("namespaces", func(t *testing.T) {
		second := store{Log: st.Log, Name: "second"}
		mustBeClean(t, second, folder(t, a))
		mustEqual(t, a, exported(t, second))
	})
	t.Run("moved", func(t *testing.T) {
		st := openStore(t)
		mustBeClean(t, st, writeTree(t, filepath.Join(t.TempDir(), "old"), a))
		changed := layouttest.Change(a, "prompt_history.jsonl", "\"z\"\n", oneCont, marshal(originalContent{SessionID: "ses_1"}))
		if r := mustBeClean(t, st, writeTree(t, filepath.Join(t.TempDir(), "new"), changed)); r.Root != "old" {
			t.Errorf("the root is %q", r.Root)
		}
		mustEqual(t, changed, exported(t, st))
	})
}

// A repeated import does not undo the changes of other writers.
func TestLiveChanges(t *testing.T) {
	a := two("ses_1")
	longer := two("ses_1").ask("fifth", "a5", "b5").files()
	turnOf := func(s string) *events.TurnAppended {
		return &events.TurnAppended{Entries: []events.Entry{{Thread: "gpt", Turn: events.Raw(`{"role":"user","content":"` + s + `"}`)}}}
	}
	for _, c := range []struct {
		name    string
		live    func(s *projector.Session) events.Payload
		next    map[string]string
		refused bool
	}{
		{"turns, folder as it was", func(*projector.Session) events.Payload { return turnOf("x") }, a.files(), true},
		{"turns, folder has them too", func(*projector.Session) events.Payload { return turnOf("fifth") }, longer, false},
		{"rewound, folder as it was", func(s *projector.Session) events.Payload { return &events.SessionRewound{To: s.History.First()} }, a.files(), true},
		{"note, folder as it was", func(s *projector.Session) events.Payload {
			note := "mine"
			return &events.RunAnnotated{Run: s.Ledger.Runs[0].Ref(), Note: &note}
		}, layouttest.Change(a.files(), oneMeta, marshal(two("ses_1").meta)), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, dir := openStore(t), folder(t, a.files())
			mustBeClean(t, st, dir)
			s := load(t, st, "ses_1")
			live(t, st, "ses_1", log.Since(s.Offset(), events.TypeTurnAppended), c.live(s))
			before := load(t, st, "ses_1").Threads.Hash()
			replaceTree(t, dir, c.next)
			r := mustImport(t, st, dir)
			if refused := len(r.Refused) == 1; refused != c.refused {
				t.Fatalf("the import refused %v, problems %v", r.Refused, r.Problems)
			}
			if c.refused && (r.Events != 0 || load(t, st, "ses_1").Threads.Hash() != before) {
				t.Errorf("a refused session was changed: %+v", r)
			}
			if r, err := (erratadir.Layout{}).Import(t.Context(), st, dir, layouts.ImportOptions{Merge: true}); err != nil || len(r.Refused) > 0 {
				t.Fatal(r, err)
			}
			mustEqual(t, c.next, exported(t, st))
		})
	}
	t.Run("not imported", func(t *testing.T) {
		st := openStore(t)
		live(t, st, "ses_1", log.Any, turnOf("x"))
		if r := mustImport(t, st, folder(t, a.files())); !slices.Equal(r.Refused, []string{"ses_1"}) {
			t.Errorf("the report is %+v", r)
		}
	})
}

// Concurrent imports of one folder import it once.
func TestConcurrent(t *testing.T) {
	st, dir := openStore(t), folder(t, rootTree())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r, err := (erratadir.Layout{}).Import(t.Context(), st, dir, layouts.ImportOptions{})
			if err != nil || len(r.Problems) > 0 {
				t.Errorf("%v, %v", err, r.Problems)
			}
		})
	}
	wg.Wait()
	mustEqual(t, rootTree(), exported(t, st))
	alone := openStore(t)
	mustBeClean(t, alone, dir)
	for _, id := range []string{"ses_1", "ses_2", "prompts", "history", "headless"} {
		if have, want := types(t, st, id), types(t, alone, id); !slices.Equal(have, want) {
			t.Errorf("%s: got %v, want %v as from one import", id, have, want)
		}
	}
	if r := mustBeClean(t, st, dir); r.Events != 0 {
		t.Errorf("the report is %+v", r)
	}
}

// A dry run reports the additions, adds nothing, and reports the same problems.
func TestDryRun(t *testing.T) {
	dir := folder(t, layouttest.Change(rootTree(), "sessions/ses_9/session_content.json", "{"))
	st := openStore(t)
	dry, err := (erratadir.Layout{}).Import(t.Context(), st, dir, layouts.ImportOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if head, err := st.Head(t.Context()); err != nil || head != 0 {
		t.Errorf("the head after a dry run is %v, error %v", head, err)
	}
	imported := mustImport(t, st, dir)
	if dry.Events != imported.Events || dry.Added != imported.Added || len(dry.Problems) != len(imported.Problems) || dry.Files != imported.Files {
		t.Errorf("the dry run reports\n%+v\nwant\n%+v", dry, imported)
	}
	if again, err := (erratadir.Layout{}).Import(t.Context(), st, dir, layouts.ImportOptions{DryRun: true}); err != nil || again.Events != 0 {
		t.Errorf("a second dry run reports %+v, error %v", again, err)
	}
}

// An import with Only imports just these sessions. A cancelled import returns the context's error.
func TestSome(t *testing.T) {
	st, dir := openStore(t), folder(t, rootTree())
	var last layouts.Progress
	r, err := (erratadir.Layout{}).Import(t.Context(), st, dir, layouts.ImportOptions{Only: []string{"ses_2"}, Progress: func(p layouts.Progress) { last = p }})
	if err != nil || r.Sessions != 1 || last.Of != 1 || last.Sessions != 1 || last.Events != r.Events {
		t.Errorf("the report is %+v, the progress %+v, error %v", r, last, err)
	}
	mustEqual(t, newSession("ses_2", "m").ask("second", "x").files(), exported(t, st))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (erratadir.Layout{}).Import(ctx, openStore(t), dir, layouts.ImportOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled import: %v", err)
	}
}

func TestSniff(t *testing.T) {
	layout := erratadir.Layout{}
	for name, want := range map[string]bool{"prompt_history.jsonl": true, oneMeta: true, oneCont: true, "data/prompt_history.jsonl": true, "history.json": false, "sessions/x/y": false, "conversations/c/meta.json": false} {
		if got := layout.Sniff(writeTree(t, t.TempDir(), map[string]string{name: "{}"})); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if !layout.Sniff(folder(t, map[string]string{"history.json": `{"m":[{"Role":"user","Content":"x"}]}`})) {
		t.Error("Sniff refused the oldest form of a history")
	}
	dir := folder(t, map[string]string{oneMeta: "{}"})
	if layout.Sniff(filepath.Join(dir, filepath.FromSlash(oneMeta))) || layout.Sniff(filepath.Join(dir, "nothing")) || !layout.Sniff(filepath.Join(dir, "sessions", "ses_1")) {
		t.Error("Sniff accepted a file, a missing path or a session's folder")
	}
}

// Links and other special files are reported, and never followed.
func TestLinks(t *testing.T) {
	dir := folder(t, two("ses_1").files())
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sessions/ses_1/link", "recipes.json", "prompt_history.jsonl"} {
		if err := os.Symlink(secret, filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	st := openStore(t)
	r := mustImport(t, st, dir)
	if len(r.Problems) != 3 {
		t.Errorf("the problems are %v", r.Problems)
	}
	mustEqual(t, two("ses_1").files(), exported(t, st))
}

func TestSubject(t *testing.T) {
	st := openStore(t)
	for path, want := range map[string]string{oneMeta: "session/ses_1", one + "a/b": "session/ses_1", "prompt_history.jsonl": "session/prompts", "history.json": "session/history",
		"recipes.json": "document/file/data=2Frecipes=2Ejson", "recipes/x.md": "document/file/data=2Frecipes=2Fx=2Emd", "": "", "sessions/ses_1/": ""} {
		sub, ok := erratadir.Layout{}.Subject(t.Context(), st, "data", path)
		if ok != (want != "") || ok && sub.String() != want {
			t.Errorf("Subject(%q) = %v, %v", path, sub, ok)
		}
	}
}

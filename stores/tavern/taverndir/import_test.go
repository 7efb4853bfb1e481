package taverndir_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/stores/tavern"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

// team is a typical .tavern.
func team() map[string]string {
	return map[string]string{
		"docs/specs/store.md":                      "---\ntitle: Store\n---\r\n\r\nText \xff",
		"docs/main.go":                             "package main\n",
		"docs/x.md.md":                             "",
		"workflows/release.json":                   "{ \"initial\": \"a\", \"states\": {\"a\": {\"end\": true}} }",
		"overlays/" + id1 + "/src/main.go":         "package other",
		"agents/kettle/agent.md":                   node(id1, "Kettle", "waiting"),
		"agents/kettle/sessions.jsonl":             `{"event":"session_started","sessionId":"s1","timestamp":"2026-08-22T10:00:00Z"}` + "\n" + `{"event":"session_expired","timestamp":"2026-08-22T11:00:00Z","reason":"gone"}` + "\n",
		"agents/kettle/notes.txt":                  "mine",
		"servitors/fix/servitor.md":                servitor,
		"servitors/fix/sessions.jsonl":             "{\"timestamp\":\"2026-08-22T10:00:00Z\",\"event\":\"break\",\"x\":1}\r\nno line\n\n{\"event\":\"session_ended\"}\n{\"event\":\"session_ended\",\"timestamp\":\"2026-08-22T12:00:00+02:00\",\"sessionId\":\"a\\/b\"}",
		"agents/odd/agent.md":                      "not a node",
		"inbox/kettle/000000000001-a.md":           "---\nfrom: user\n---\nhello",
		"queues/build/queue.json":                  "{}",
		"readme":                                   "",
		"docs/.hidden":                             "h",
		"docs/main.go~":                            "old",
		".git/config":                              "x",
		"workflows/readme.txt":                     "not a template",
		"docs/=41=2Fb/" + strings.Repeat("n", 100): "escaped",
	}
}

var hidden = []string{"docs/.hidden", "docs/main.go~", ".git/config"}

func TestImport(t *testing.T) {
	st, files := openStore(t), team()
	dir := folder(t, ".tavern", files)
	r := imported(t, st, dir, layouts.ImportOptions{})
	t.Run("D-53 a .tavern goes in and comes out byte for byte", func(t *testing.T) {
		if r.Added != 2 || r.Root != ".tavern" {
			t.Errorf("the report is %+v", r)
		}
		wantFiles(t, st, files, hidden...)
	})
	t.Run("D-53 again, nothing is added", func(t *testing.T) {
		if again := imported(t, st, filepath.Dir(dir), layouts.ImportOptions{}); again.Events != 0 || again.Unchanged != 2 {
			t.Errorf("the report is %+v", again)
		}
	})
	t.Run("D-53 travels to another machine", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "clone", ".tavern")
		layouttest.MustExport(t, st, taverndir.Layout{}, out, layouts.ExportOptions{All: true})
		other := openStore(t)
		imported(t, other, out, layouts.ImportOptions{})
		wantFiles(t, other, files, hidden...)
		a, b := need(tavern.AgentOf(st, id1).Info(t.Context())), need(tavern.AgentOf(other, id1).Info(t.Context()))
		if a.State != b.State || a.Name != b.Name || !slices.Equal(a.Commitments, b.Commitments) || len(a.Log) != len(b.Log) {
			t.Errorf("the agents are %+v and %+v", a, b)
		}
	})
	t.Run("D-12 the agents are there", func(t *testing.T) {
		i := need(tavern.AgentOf(st, id1).Info(t.Context()))
		if i.Name != "Kettle" || i.State != tavern.AgentWaiting || i.Assignment != "Boil." || len(i.Commitments) != 1 || !i.HasPending() {
			t.Errorf("got %+v", i)
		}
		if i = need(tavern.AgentOf(st, id2).Info(t.Context())); i.Name != "Fix" || i.State != tavern.AgentIdle || i.Assignment != "do: it" {
			t.Errorf("got %+v", i)
		}
	})
	t.Run("D-32 the log of sessions, in order", func(t *testing.T) {
		var have []events.SessionLog
		for _, id := range []string{id1, id2} {
			for _, e := range need(tavern.AgentOf(st, id).Info(t.Context())).Log {
				have = append(have, e.SessionLog)
			}
		}
		want := []events.SessionLog{
			{Event: "started", Session: "s1", At: "2026-08-22T10:00:00Z"}, {Event: "expired", At: "2026-08-22T11:00:00Z"},
			{Event: "break", At: "2026-08-22T10:00:00Z"}, {Event: "ended", Session: "a/b", At: "2026-08-22T12:00:00+02:00"},
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Error(diff)
		}
		var bad []string
		for _, p := range r.Problems {
			bad = append(bad, p.File+":"+string(rune('0'+p.Line)))
		}
		if want := []string{"agents/odd/agent.md:0", "servitors/fix/sessions.jsonl:2", "servitors/fix/sessions.jsonl:4"}; !slices.Equal(bad, want) {
			t.Errorf("the problems are %q", bad)
		}
	})
	t.Run("D-32 what is logged since stands behind what was there", func(t *testing.T) {
		for _, id := range []string{id1, id2} {
			s := st.Session("agent/" + id)
			need(s.Update(t.Context(), []string{events.TypeSessionUpdated}, logged("expired", "why")))
		}
		more := `{"event":"session_expired","timestamp":"2026-08-23T10:00:00Z","reason":"why"}` + "\n"
		files["agents/kettle/sessions.jsonl"] += more
		files["servitors/fix/sessions.jsonl"] += "\n" + more
		wantFiles(t, st, files, hidden...)
		if r := imported(t, st, dir, layouts.ImportOptions{}); r.Events != 0 || len(r.Refused) != 0 {
			t.Errorf("the report of the older folder is %+v", r)
		}
	})
	t.Run("documents have the bytes and the ids of their files", func(t *testing.T) {
		for id, content := range map[string]string{"specs/store": files["docs/specs/store.md"], "main.go": files["docs/main.go"], "x.md": "", "A/b/" + strings.Repeat("n", 100): "escaped"} {
			if doc, err := st.Documents().Read(t.Context(), "doc", id); err != nil || string(doc.Data) != content {
				t.Errorf("%s: got the error %v", id, err)
			}
		}
		if _, err := st.Documents().Read(t.Context(), "workflow", "release"); err != nil {
			t.Error(err)
		}
		if _, err := st.Documents().Read(t.Context(), "overlay", id1+"/src/main.go"); err != nil {
			t.Error(err)
		}
	})
}

// An import does not revert subjects that came from elsewhere or were changed in the store.
func TestImportRefuses(t *testing.T) {
	ctx := t.Context()
	st := openStore(t)
	files := map[string]string{"docs/a.md": "1", "agents/kettle/agent.md": node(id1, "Kettle", "idle")}
	dir := folder(t, ".tavern", files)
	imported(t, st, dir, layouts.ImportOptions{})
	a := tavern.AgentOf(st, id1)
	if err := a.SetState(ctx, tavern.AgentWorking, ""); err != nil {
		t.Fatal(err)
	}
	need(st.Documents().Save(ctx, "doc", "a", tally.Write{Data: []byte("2"), ContentType: "text/markdown"}))
	wantFiles(t, st, map[string]string{"docs/a.md": "2", "agents/kettle/agent.md": node(id1, "Kettle", "working")})
	r := imported(t, st, dir, layouts.ImportOptions{})
	if r.Events != 0 || len(r.Problems) != 2 || !slices.Equal(r.Refused, []string{"agent/" + id1}) {
		t.Errorf("the report is %+v", r)
	}
	dry := imported(t, st, dir, layouts.ImportOptions{DryRun: true, Merge: true})
	r = imported(t, st, dir, layouts.ImportOptions{Merge: true})
	if i := need(a.Info(ctx)); i.State != tavern.AgentIdle || len(r.Problems) != 0 || r.Events != 3 || dry.Events != 3 {
		t.Errorf("%s, %+v, %+v", i.State, r, dry)
	}
	wantFiles(t, st, files)

	// A change in the folder alone changes the store.
	files["agents/kettle/agent.md"] = node(id1, "Pot", "done")
	files["docs/a.md"] = "3"
	write(t, dir, files)
	if r := imported(t, st, dir, layouts.ImportOptions{}); r.Changed != 1 || len(r.Problems) != 0 {
		t.Errorf("the report is %+v", r)
	}
	if i := need(a.Info(ctx)); i.State != tavern.AgentDone || i.Name != "Pot" {
		t.Errorf("got %+v", i)
	}
	wantFiles(t, st, files)
}

func TestFlat(t *testing.T) {
	files := map[string]string{"kettle.md": node(id1, "Kettle", "done"), "spec.md": "# Spec\n", "b c.md": "", "notes.txt": "x", ".hidden.md": "h", "sub/deep.md": "d", "a.MD": "not it"}
	dir := folder(t, "store", files)
	t.Run("D-08 ids are sorted, of that extension, neither hidden nor below", func(t *testing.T) {
		if have := need(taverndir.List(dir)); !slices.Equal(have, []string{"b c", "kettle", "spec"}) {
			t.Errorf("got %q", have)
		}
		if _, err := taverndir.List(filepath.Join(dir, "spec.md")); err == nil {
			t.Error("List accepted a file")
		}
	})
	t.Run("D-08 a folder of documents goes in and comes out", func(t *testing.T) {
		st := openStore(t)
		if r := imported(t, st, dir, layouts.ImportOptions{}); r.Added != 1 || len(r.Problems) != 0 {
			t.Errorf("the report is %+v", r)
		}
		wantFiles(t, st, files, ".hidden.md")
		for _, id := range []string{"spec", "b c"} {
			need(st.Documents().Read(t.Context(), "doc", id))
		}
		if i := need(tavern.AgentOf(st, id1).Info(t.Context())); i.State != tavern.AgentDone {
			t.Errorf("got %+v", i)
		}
	})
	t.Run("a folder of documents without an agent takes a word", func(t *testing.T) {
		plain := folder(t, "store", map[string]string{"spec.md": "---\ntitle: x\n---\n"})
		_, err := (taverndir.Layout{}).Import(t.Context(), openStore(t), plain, layouts.ImportOptions{})
		if !errors.Is(err, layouts.ErrUnknownLayout) || (taverndir.Layout{}).Sniff(plain) || !(taverndir.Layout{Flat: true}).Sniff(plain) {
			t.Errorf("got the error %v", err)
		}
		st := openStore(t)
		need((taverndir.Layout{Flat: true}).Import(t.Context(), st, plain, layouts.ImportOptions{}))
		need(st.Documents().Read(t.Context(), "doc", "spec"))
	})
}

// Agents and documents that were never imported have paths too.
func TestExportLive(t *testing.T) {
	ctx, st := t.Context(), openStore(t)
	for range 2 {
		need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "Boil It"}))
	}
	first := need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{ID: id1, Name: "../Up"}))
	need(first.Session().Update(ctx, []string{events.TypeSessionUpdated}, logged("started", "")))
	need(st.Documents().Save(ctx, "doc", "spec", tally.Write{Data: []byte("s"), ContentType: "text/markdown; charset=utf-8"}))
	files, r := layouttest.Exported(t, st, taverndir.Layout{})
	var names []string
	for name := range files {
		if dir, rest, ok := strings.Cut(name, "=~"); ok {
			name = dir + "=~" + rest[36:]
		}
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{"agents/=2E.=2Fup/agent.md", "agents/=2E.=2Fup/sessions.jsonl", "agents/boil-it/agent.md", "agents/boil-it=~/agent.md", "docs/spec.md"}
	if !slices.Equal(names, want) || len(r.Problems) != 0 {
		t.Errorf("%q %+v", names, r)
	}
	again := openStore(t)
	imported(t, again, folder(t, ".tavern", files), layouts.ImportOptions{})
	wantFiles(t, again, files)
}

// With any contents of the files, an import neither panics nor loses a byte.
func FuzzImport(f *testing.F) {
	f.Add(node(id1, "K", "idle"), `{"event":"break","timestamp":"2026-08-22T10:00:00Z"}`+"\n", "---\n")
	f.Add(node(id1, "K", "idle"), `{"event":"break","timestamp":"2026-08-22T1:00:00Z"}`+"\n", "---\n") // no hour has one digit
	f.Add(servitor, "\x00\n{}\n", "\xff")
	f.Fuzz(func(t *testing.T, agent, entries, doc string) {
		files := map[string]string{"agents/a/agent.md": agent, "agents/a/sessions.jsonl": entries, "docs/a.md": doc}
		st, dir := openStore(t), folder(t, ".tavern", files)
		imported(t, st, dir, layouts.ImportOptions{})
		wantFiles(t, st, files)
		if again := imported(t, st, dir, layouts.ImportOptions{}); again.Events != 0 {
			t.Errorf("the report of a second import is %+v", again)
		}
	})
}

// A link in the folder is not followed, and a missing folder is an error.
func TestOdd(t *testing.T) {
	dir := folder(t, ".tavern", map[string]string{"docs/a.md": "1"})
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "docs", "link")); err != nil {
		t.Skip(err)
	}
	st := openStore(t)
	if r := imported(t, st, dir, layouts.ImportOptions{}); len(r.Problems) != 1 {
		t.Errorf("the report is %+v", r)
	}
	wantFiles(t, st, map[string]string{"docs/a.md": "1"})
	if _, err := (taverndir.Layout{Flat: true}).Import(t.Context(), st, filepath.Join(dir, "none"), layouts.ImportOptions{}); err == nil {
		t.Error("the import of a missing folder succeeded")
	}
}

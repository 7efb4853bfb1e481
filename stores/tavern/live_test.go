package tavern_test

import (
	"errors"
	"fmt"
	"maps"
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
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/tavern"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

// team is a store with a team's folder that follows it.
type team struct {
	t *testing.T
	*tally.Store
	end func()
	dir string
}

func newTeam(t *testing.T, store, dir string) *team {
	m := &team{t: t, dir: dir}
	m.Store, m.end = storetest.Live(t, store, taverndir.Layout{})
	m.settle()
	return m
}

// settle imports the edited files.
func (m *team) settle() {
	m.t.Helper()
	must(m.t, m.KeepFiles(m.t.Context(), "tavern", m.dir))
}

func (m *team) put(id, text string) {
	m.t.Helper()
	need(m.Documents().Save(m.t.Context(), "doc", id, tally.Write{Data: []byte(text), ContentType: "text/markdown"}))
}

func (m *team) write(name, text string) {
	m.t.Helper()
	must(m.t, os.MkdirAll(filepath.Dir(filepath.Join(m.dir, name)), 0o755))
	must(m.t, os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o644))
}

// shows checks the present text of a file.
func (m *team) shows(name, want string) {
	m.t.Helper()
	if have, err := os.ReadFile(filepath.Join(m.dir, name)); err != nil || string(have) != want {
		m.t.Errorf("%s is %q, %v, want %q", name, have, err, want)
	}
}

// docs returns the documents of a kind, by id.
func (m *team) docs(kind string) map[string]string {
	m.t.Helper()
	all := make(map[string]string)
	for info, err := range m.Subjects(m.t.Context(), kind) {
		must(m.t, err)
		if d, err := m.Documents().Read(m.t.Context(), kind, info.Subject.ID); err == nil {
			all[info.Subject.ID] = string(d.Data)
		}
	}
	return all
}

// fill does one action of each kind.
func (m *team) fill() {
	ctx := m.t.Context()
	m.put("notes", "# Notes\r\n no end \xff")
	m.put("sub/main.go", "package main")
	need(m.Documents().Save(ctx, "workflow", "w", tally.Write{Data: []byte(`{ "initial": "a", "states": {"a": {"end": true}} }`)}))
	need(m.Documents().Save(ctx, "overlay", "kettle/CLAUDE.md", tally.Write{Data: []byte("be brief")}))
	a := newAgent(m.t, m.Store)
	must(m.t, a.SetState(ctx, "working", ""))
	must(m.t, tavern.InboxOf(m.Store, "ci").Open(ctx, ""))
	hello := need(tavern.InboxOf(m.Store, "ci").Send(ctx, tavern.Message{From: "user", Type: "note", Thread: "t", Body: tavern.Text("hello")}))
	must(m.t, tavern.InboxOf(m.Store, "ci").Seen(ctx, hello.Offset))
	q := tavern.QueueOf(m.Store, "build")
	must(m.t, q.Create(ctx, tavern.QueueSettings{OnEmpty: "hibernate"}))
	need(q.EnqueueMany(ctx, tavern.Item{ID: "one", Body: []byte(`{"n":1}`)}, tavern.Item{ID: "two", Body: []byte(`{"n":2}`), Priority: 9, After: []string{"one"}}))
	m.work(q)
	need(tavern.InboxOf(m.Store, "ci").Send(ctx, tavern.Message{From: "user", Type: "note", Thread: "t", Body: tavern.Text("unread")}))
}

// work creates an item of a queue for each possible result.
func (m *team) work(q *tavern.Queue) {
	ctx := m.t.Context()
	for _, id := range []string{"done", "late", "failed", "dead", "again", "back", "claimed", "over"} {
		need(q.Enqueue(ctx, tavern.Item{ID: id, Body: []byte(id + "\n"), Priority: 9}))
		c := need(q.TryClaim(ctx, "w-"+id))
		if c.Item.ID != id {
			m.t.Fatalf("got the item %s, want %s", c.Item.ID, id)
		}
		switch id {
		case "done":
			must(m.t, c.Finish(ctx, []byte(`{"exit": 0}`)))
		case "late":
			must(m.t, c.Fail(ctx, "exit 1", true))
			must(m.t, need(q.TryClaim(ctx, "other")).Finish(ctx, nil))
		case "failed":
			must(m.t, c.Fail(ctx, "exit 2", true))
			must(m.t, need(q.TryClaim(ctx, "other")).Fail(ctx, "exit 3", false))
		case "dead", "again":
			for must(m.t, c.Fail(ctx, "exit 4", true)); c.Attempt < 5; must(m.t, c.Fail(ctx, "exit 4", true)) {
				c = need(q.TryClaim(ctx, "w"))
			}
			if id == "again" {
				must(m.t, q.Requeue(ctx, id))
				must(m.t, need(q.TryClaim(ctx, "w")).Fail(ctx, "exit 5", true))
				need(q.TryClaim(ctx, "holder"))
			}
		case "back":
			must(m.t, c.Release(ctx))
			c = need(q.TryClaim(ctx, "holder"))
			need(c.Renew(ctx))
		}
	}
}

// known returns the contents of a team's store, in terms that do not depend on the store.
func (m *team) known() map[string]any {
	ctx, all := m.t.Context(), make(map[string]any)
	for _, kind := range []string{"doc", "workflow", "overlay", events.KindAgent} {
		all[kind] = m.docs(kind)
	}
	for info, err := range m.Subjects(ctx, events.KindSession) {
		must(m.t, err)
		s := need(m.Loader().Session(ctx, info.Subject, 0))
		said := map[string]any{"kind": s.Ledger.Kind, "threads": s.Threads.Hash()}
		if id, ok := strings.CutPrefix(info.Subject.ID, "agent/"); ok {
			a := need(tavern.AgentOf(m.Store, id).Info(ctx))
			said["state"], said["commitments"], said["node"] = a.State, a.Commitments, string(a.Node)
		}
		all[info.Subject.ID] = said
	}
	var items []string
	q := tavern.QueueOf(m.Store, "build")
	list, _, err := q.List(ctx, tavern.ListQuery{States: []tavern.ItemState{tavern.ItemReady, tavern.ItemClaimed, tavern.ItemWaiting, tavern.ItemDone, tavern.ItemDead}})
	must(m.t, err)
	for _, i := range list {
		said := fmt.Sprintf("%s %q %s %d %s %s %v %q", i.ID, i.Body, i.State, i.Attempts, i.Worker, i.Outcome, i.Until.UnixMilli(), i.Error)
		for _, a := range need(q.Get(ctx, i.ID)).History {
			said += fmt.Sprintf("\n\t%d %s %s %q %s", a.Number, a.Worker, a.Outcome, a.Error, a.Result)
		}
		items = append(items, said)
	}
	slices.Sort(items)
	all["items"] = items
	messages, _, err := tavern.InboxOf(m.Store, "ci").List(ctx, tavern.Page{})
	must(m.t, err)
	cursor := need(tavern.InboxOf(m.Store, "ci").Cursor(ctx))
	for _, message := range messages {
		all["message "+message.ID] = fmt.Sprint(message.From, string(message.Body), message.Offset <= cursor)
	}
	return all
}

func TestLiveFolder(t *testing.T) {
	ctx := t.Context()
	folder := func() string { return filepath.Join(t.TempDir(), ".tavern") }
	t.Run("D-01 all that is kept has its file, and nothing rests on what can be made again", func(t *testing.T) {
		store := t.TempDir()
		m := newTeam(t, store, folder())
		m.fill()
		for _, kind := range []string{"doc", "workflow", "overlay", events.KindAgent, events.KindSession} {
			found := 0
			for info, err := range m.Subjects(ctx, kind) {
				must(t, err)
				entry, ok, err := taverndir.Layout{}.Entry(ctx, m.Store, layouts.Root{Name: ".tavern"}, info.Subject)
				if err != nil || !ok {
					t.Errorf("%s has no file: %v", info.Subject, err)
					continue
				}
				location := need(taverndir.Layout{}.Location(ctx, m.Store, layouts.Root{Name: ".tavern"}, entry))
				if at, err := os.Stat(filepath.Join(m.dir, location.Path)); err != nil || at.IsDir() != location.Folder {
					t.Errorf("%s: got the error %v", info.Subject, err)
				}
				found++
			}
			if found == 0 {
				t.Errorf("the folder has no %s", kind)
			}
		}
		want, _ := layouttest.Exported(t, m.Store, taverndir.Layout{})
		layouttest.MustEqual(t, want, layouttest.ReadLive(t, m.dir))
		known, had := m.known(), agentRecords(ctx, m.Store)
		m.end()
		for _, made := range []string{"snapshots", "trees"} {
			must(t, os.RemoveAll(filepath.Join(store, made)))
		}
		for _, view := range need(filepath.Glob(filepath.Join(store, "*.db*"))) {
			must(t, os.Remove(view))
		}
		m = newTeam(t, store, m.dir)
		if diff := cmp.Diff(known, m.known()); diff != "" || agentRecords(ctx, m.Store) != had {
			t.Errorf("%d records, before %d: %s", agentRecords(ctx, m.Store), had, diff)
		}
		layouttest.MustEqual(t, want, layouttest.ReadLive(t, m.dir))
	})
	t.Run("D-02 the file shows what was acknowledged", func(t *testing.T) {
		m := newTeam(t, "", folder())
		a := newAgent(t, m.Store)
		for _, state := range []string{"working", "waiting", "working", "idle"} {
			must(t, a.SetState(ctx, state, ""))
			m.shows("agents/kettle/agent.md", strings.Replace(agentFile, "state: idle", "state: "+state, 1))
			m.put("n", state)
			m.shows("docs/n.md", state)
		}
	})
	t.Run("D-11 bytes are the same in the store, in the file and on the way back", func(t *testing.T) {
		m := newTeam(t, "", folder())
		for i, text := range []string{"x", "\n", "\r\n\r\n", " \t x \t\r", "no end", "\xff\xfe\x00", "\ufeffBOM", strings.Repeat("é\n", 5000), "---\ntitle:   odd\n---\r\n\n\n"} {
			id := string(rune('a' + i))
			m.put(id, text)
			m.shows("docs/"+id+".md", text)
			if i%2 == 1 {
				m.write("docs/hand-"+id+".md", text)
			}
		}
		m.settle()
		docs := m.docs("doc")
		for id, text := range docs {
			if other, ok := docs["hand-"+id]; ok && other != text {
				t.Errorf("the texts are %q and %q", text, other)
			}
		}
		if len(docs) != 13 {
			t.Errorf("got %d documents", len(docs))
		}
	})
	t.Run("D-40 what another program does to files are writes, and nothing comes back", func(t *testing.T) {
		m := newTeam(t, "", folder())
		m.put("a", "one")
		m.put("b", "to go")
		m.put("c", "to move")
		base := need(m.Documents().Read(ctx, "doc", "a")).Offset
		m.write("docs/a.md", "two")
		m.write("docs/new/deep.md", "new")
		must(t, os.Remove(filepath.Join(m.dir, "docs/b.md")))
		must(t, os.Rename(filepath.Join(m.dir, "docs/c.md"), filepath.Join(m.dir, "docs/d.md")))
		m.settle()
		if diff := cmp.Diff(map[string]string{"a": "two", "new/deep": "new", "d": "to move"}, m.docs("doc")); diff != "" {
			t.Error(diff)
		}
		if h := need(m.Documents().History(ctx, "doc", "a", 0, 0)); len(h) != 2 || h[0].Offset != base && h[1].Offset != base {
			t.Errorf("got %+v", h)
		}
		had := agentRecords(ctx, m.Store)
		m.settle()
		m.settle()
		if n := agentRecords(ctx, m.Store); n != had {
			t.Errorf("the files added %d records", n-had)
		}
		m.write("docs/a.md", "by hand")
		m.put("a", "by the log") // at the same time
		kept := m.docs("conflict")
		for _, c := range need(m.Documents().History(ctx, "doc", "a", 0, 0)) {
			kept[c.Offset.String()] = string(need(c.Read(ctx)).Data)
		}
		for _, text := range []string{"by hand", "by the log"} {
			if !slices.Contains(slices.Collect(maps.Values(kept)), text) {
				t.Errorf("the text %q is lost: %q", text, kept)
			}
		}
	})
	t.Run("D-41 the folder alone, as a kill leaves it, gives an equal store", func(t *testing.T) {
		m := newTeam(t, "", folder())
		m.fill()
		copied := folder()
		for name, text := range layouttest.ReadTree(t, m.dir) { // as after a kill
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(copied, name)), 0o755))
			must(t, os.WriteFile(filepath.Join(copied, name), []byte(text), 0o644))
		}
		other := &team{t: t, Store: storetest.Open(t, "memory")}
		need(taverndir.Layout{}.Import(ctx, other.Store, copied, layouts.ImportOptions{}))
		if diff := cmp.Diff(m.known(), other.known()); diff != "" {
			t.Error(diff)
		}
		live := newTeam(t, "", copied)
		if diff := cmp.Diff(m.known(), live.known()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("B-42 work that is done in one clone is done in another one that lives on its folder", func(t *testing.T) {
		one, two := newTeam(t, "", folder()), newTeam(t, "", folder())
		q, other := tavern.QueueOf(one.Store, "build"), tavern.QueueOf(two.Store, "build")
		pull := func() {
			for name, text := range layouttest.ReadLive(t, one.dir) {
				two.write(name, text)
			}
			two.settle()
		}
		need(q.EnqueueMany(ctx, tavern.Item{ID: "a", Body: []byte("a")}, tavern.Item{ID: "b", Body: []byte("b")}))
		pull()
		must(t, need(q.TryClaim(ctx, "w")).Finish(ctx, []byte(`"ok"`)))
		need(q.TryClaim(ctx, "w"))
		pull()
		if c, err := other.TryClaim(ctx, "w"); err == nil {
			t.Errorf("the item %s was claimed a second time", c.Item.ID)
		}
		if counts := need(other.Counts(ctx)); counts[tavern.ItemReady] != 0 || counts[tavern.ItemClaimed] != 1 {
			t.Errorf("got %v", counts)
		}
		layouttest.MustEqual(t, layouttest.ReadLive(t, one.dir), layouttest.ReadLive(t, two.dir))
		if kept := two.docs("conflict"); len(kept) > 0 {
			t.Errorf("the conflicts are %q", kept)
		}
	})
	t.Run("B-44 a file that is no template stays, and is one when it is mended", func(t *testing.T) {
		m := newTeam(t, "", folder())
		const bad, good = `{"steps":[]}`, `{"initial":"a","states":{"a":{"end":true}}}`
		m.write("workflows/w.json", bad)
		m.settle()
		m.shows("workflows/w.json", bad)
		if docs := m.docs("workflow"); len(docs) > 0 {
			t.Errorf("an invalid template was imported: %q", docs)
		}
		m.write("workflows/w.json", good)
		m.settle()
		m.shows("workflows/w.json", good)
		if diff := cmp.Diff(map[string]string{"w": good}, m.docs("workflow")); diff != "" {
			t.Error(diff)
		}
		m.write("workflows/w.json", bad)
		m.settle()
		if docs, kept := m.docs("workflow"), m.docs("conflict"); docs["w"] != good || !slices.Contains(slices.Collect(maps.Values(kept)), bad) {
			t.Errorf("the documents are %q, the conflicts %q", docs, kept)
		}
	})
	t.Run("B-44 an agent is not put into a state that agents do not have", func(t *testing.T) {
		m := newTeam(t, "", folder())
		a := newAgent(t, m.Store)
		odd := strings.Replace(agentFile, "state: idle", "state: napping", 1)
		m.write("agents/kettle/agent.md", odd)
		m.settle()
		if info := need(a.Info(ctx)); info.State != tavern.AgentIdle || !slices.Contains(slices.Collect(maps.Values(m.docs("conflict"))), odd) {
			t.Errorf("the agent is %+v, the conflicts are %q", info, m.docs("conflict"))
		}
		m.shows("agents/kettle/agent.md", agentFile)
	})
	t.Run("D-53 a folder that travels is the same elsewhere, with nothing personal in it", func(t *testing.T) {
		m := newTeam(t, "", folder())
		m.fill()
		personal := need(m.In(events.PersonalNamespace))
		need(personal.Documents().Save(ctx, "doc", "mine", tally.Write{Data: []byte("canary of a person")}))
		if err := personal.KeepFiles(ctx, "tavern", t.TempDir()); !isPersonal(err) {
			t.Errorf("got the error %v", err)
		}
		files := layouttest.ReadLive(t, m.dir)
		for name, text := range files {
			if strings.Contains(text, "canary") {
				t.Errorf("the folder has the personal file %s", name)
			}
		}
		there := newTeam(t, "", agentDir(t, files))
		layouttest.MustEqual(t, files, layouttest.ReadLive(t, there.dir))
		if diff := cmp.Diff(m.docs("doc"), there.docs("doc")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("D-67 ids that clash as files have files apart, and come back as themselves", func(t *testing.T) {
		m := newTeam(t, "", folder())
		ids := map[string]string{}
		for _, id := range []string{"a", "A", "d", "d/x", "D/x", "\u00e9", "e\u0301", "x", "x.md", "con", "a=2Fb", "a b "} {
			m.put(id, "text of "+id)
			ids[id] = "text of " + id
		}
		files, folded := layouttest.ReadLive(t, m.dir), make(map[string]string)
		for name := range files {
			if other := folded[layouts.FoldedName(name)]; other != "" {
				t.Errorf("%q and %q have equal names on some system", name, other)
			}
			folded[layouts.FoldedName(name)] = name
		}
		if len(files) != len(ids) {
			t.Errorf("got %d files of %d documents", len(files), len(ids))
		}
		other := &team{t: t, Store: storetest.Open(t, "memory")}
		need(taverndir.Layout{}.Import(ctx, other.Store, agentDir(t, files), layouts.ImportOptions{}))
		if diff := cmp.Diff(ids, other.docs("doc")); diff != "" {
			t.Error(diff)
		}
	})
}

func isPersonal(err error) bool {
	_, ok := errors.AsType[*events.PersonalError](err)
	return ok
}

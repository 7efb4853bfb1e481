package taverndir_test

import (
	"errors"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

// Subjects of other kinds or of another layer have no files, and new files are not taken for theirs.
func TestSelect(t *testing.T) {
	ctx, st := t.Context(), openStore(t)
	mine := tally.Write{Data: []byte("mine"), Layer: "personal"}
	need(st.Documents().Save(ctx, "doc", "diary", mine))
	need(st.Documents().Save(ctx, "doc", "plan", tally.Write{Data: []byte("ours")}))
	need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{ID: id1, Name: "Kettle", Layer: "personal"}))
	said(t, st, "inbox/"+id1, "inbox", "m", "", `"x"`)
	said(t, st, "inbox/user", "inbox", "m", "", `"x"`)
	said(t, st, "queue/build", events.MainThread, "i", "", `"x"`)
	paths := map[string]events.Subject{
		"docs/diary": events.Document("ns", "doc", "diary"), "docs/plan": events.Document("ns", "doc", "plan"), "docs/new": {},
		"agents/kettle/agent.md": events.Session("ns", "agent/"+id1), "agents/new/agent.md": {}, "agents/new/sessions.jsonl": {},
		"inbox/" + id1 + "/inbox.json": events.Session("ns", "inbox/"+id1), "inbox/user/inbox.json": events.Session("ns", "inbox/user"),
		"queues/build/queue.json": events.Session("ns", "queue/build"), "loose": {}, "overlays/new/x.go": {},
	}
	for _, want := range []struct {
		kinds []string
		layer string
		files []string
	}{
		{nil, "all", []string{"docs/diary", "docs/plan", "docs/new", "agents/kettle/agent.md", "agents/new/agent.md", "agents/new/sessions.jsonl", "inbox/" + id1 + "/inbox.json", "inbox/user/inbox.json", "queues/build/queue.json", "loose", "overlays/new/x.go"}},
		{nil, "", []string{"docs/plan", "docs/new", "agents/new/agent.md", "agents/new/sessions.jsonl", "queues/build/queue.json", "loose", "overlays/new/x.go"}},
		{[]string{"agent"}, "project", []string{"agents/new/agent.md", "agents/new/sessions.jsonl"}},
		{[]string{"agent"}, "all", []string{"agents/kettle/agent.md", "agents/new/agent.md", "agents/new/sessions.jsonl"}},
		{[]string{"doc", "queue"}, "", []string{"docs/plan", "docs/new", "queues/build/queue.json"}},
		{[]string{"file"}, "", []string{"loose"}},
	} {
		l, err := taverndir.Layout{}.Select(want.kinds, want.layer)
		if err != nil {
			t.Fatal(err)
		}
		has := make(map[string]bool)
		for _, p := range want.files {
			has[p] = true
		}
		for p, entry := range paths {
			entry.Namespace = st.Namespace()
			if _, ok, err := l.EntryAt(ctx, st, live, p); err != nil || ok != has[p] {
				t.Errorf("%v of layer %q: an entry at %s: %v, error %v, want %v", want.kinds, want.layer, p, ok, err, has[p])
			}
			if entry.ID == "" {
				continue
			}
			at, err := l.Location(ctx, st, live, entry)
			if gone := errors.Is(err, projector.ErrNotFound); gone == has[p] || err != nil && !gone {
				t.Errorf("%v of layer %q: the path of %v is %v, error %v", want.kinds, want.layer, entry, at, err)
			}
		}
	}
}

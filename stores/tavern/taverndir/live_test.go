package taverndir_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

var live = layouts.Root{Name: ".tavern", Marker: "m"}

// everything is a folder with every kind of file.
func everything() map[string]string {
	return map[string]string{
		"docs/spec.md": "# Spec\n", "docs/a/b.txt": "\xff", "docs/Spec": "another", "workflows/w.json": template, "overlays/" + id1 + "/x.go": "package x\n",
		"agents/kettle/agent.md": node(id1, "Kettle", "idle"), "agents/kettle/sessions.jsonl": "{\"event\":\"break\",\"timestamp\":\"2026-08-22T10:00:00Z\"}\nno line\n",
		"agents/kettle/notes.txt": "mine", "agents/odd/agent.md": "no agent", "agents/odd/sessions.jsonl": "{}", "servitors/fix/servitor.md": servitor,
		"inbox/kettle/000000000001-m1.md": "---\nfrom: user\nid: m1\n---\n\nDoes it?", "inbox/kettle/inbox.json": "{\"seen\":1}\n", "inbox/kettle/hello.md": "hi",
		"queues/build/queue.json": "{\"title\":\"Build\",\"createdAt\":\"2026-08-22T10:00:00Z\"}\n", "queues/build/items/000000000001-i1.json": "{\"id\":\"i1\",\"turn\":\"x\"}\n",
		"loose": "x", "top.md": "a text",
	}
}

func TestEntries(t *testing.T) {
	l := taverndir.Layout{}
	t.Run("D-53 a folder from any storage", func(t *testing.T) {
		a, b := openStore(t), openStore(t)
		root := layouttest.CheckImportFrom(t, l, folder(t, ".tavern", everything()), a, b)
		layouttest.CheckEntries(t, a, l, root)
		layouttest.CheckAlone(t, l, root, a, func() layouts.Target { return openStore(t) })
		layouttest.CheckRemovals(t, l, root, a, func(entry events.Subject) bool {
			return strings.HasPrefix(entry.ID, "inbox/") || strings.HasPrefix(entry.ID, "queue/")
		})
	})
	t.Run("D-67 names apart", rapid.MakeCheck(func(rt *rapid.T) {
		ctx, st := t.Context(), openStore(t)
		for i := range rapid.IntRange(1, 12).Draw(rt, "units") {
			name := rapid.SampledFrom([]string{"a", "A", "é", "e\u0301", "a/b", "b", "..", "agent.md"}).Draw(rt, "name")
			switch rapid.IntRange(0, 4).Draw(rt, "kind") {
			case 0:
				need(st.Documents().Save(ctx, "doc", name+fmt.Sprint(i/2), tally.Write{Data: []byte(name), ContentType: "text/markdown"}))
			case 1:
				need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: name}))
			case 2:
				said(t, st, "inbox/"+name, "inbox", "m", "", `"x"`)
			case 3:
				if name == ".." {
					continue
				}
				need(l.ImportFrom(ctx, st, layouttest.InMemory(t, map[string]string{"agents/" + name + "/x.txt": "kept"}, 0o644), live, layouts.ImportOptions{Part: true}))
			case 4:
				said(t, st, "queue/"+name, "main", "m", "", `"x"`)
			}
		}
		shown := layouttest.CheckEntries(t, st, l, live)
		layouttest.CheckAlone(t, l, live, st, func() layouts.Target { return openStore(t) })
		dirs := make(map[string]events.Subject)
		for entry, u := range shown {
			if other, ok := dirs[strings.ToLower(u.At)]; ok && entry.IsSession() {
				rt.Errorf("%s and %s have the same path %s", entry, other, u.At)
			}
			dirs[strings.ToLower(u.At)] = entry
		}
	}))
	t.Run("D-40 edits", func(t *testing.T) {
		for seed := range layouttest.Seeds(6) {
			st := openStore(t)
			need(l.ImportFrom(t.Context(), st, layouttest.InMemory(t, everything(), 0o644), live, layouts.ImportOptions{}))
			layouttest.CheckEdits(t, l, live, st, rand.New(rand.NewPCG(seed, 1)), 12)
			layouttest.CheckEntries(t, st, l, live)
		}
	})
}

// A document's id cannot place a file where git, an editor or a shell reads its settings. No folder is read there
// either.
func TestHiddenPlaces(t *testing.T) {
	st := openStore(t)
	for _, c := range []struct{ kind, id, path string }{
		{"file", ".tavern/.git/config", ""}, {"file", ".tavern/loose", ".git/hooks/pre-commit"}, {"doc", "a", ".envrc"}, {"doc", "b", "docs/.vscode/settings.json"},
		{events.KindAgent, id1, ".claude/agent.md"}, {"workflow", "w", ".git/config"},
	} {
		sub := events.Document(st.Namespace(), c.kind, c.id)
		meta := events.DocMeta{Attributes: map[string]string{"root": ".tavern"}}
		if c.path != "" {
			meta.Attributes["path"] = c.path
		}
		e := events.Event{Source: "urn:api", Type: events.TypeDocumentWritten, Subject: sub, ContentType: events.ContentTypeRaw, Data: []byte("x")}
		need(st.Append(t.Context(), sub, log.At(0), e.WithExtension(events.ExtDoc, meta.String())))
	}
	need(st.Documents().Save(t.Context(), "doc", "plain", tally.Write{Data: []byte("x"), ContentType: "text/markdown"}))
	l := need((taverndir.Layout{}).Select(nil, "all"))
	for entry, u := range layouttest.Entries(t, st, l, live) {
		if u.At != "docs/plain.md" {
			t.Errorf("the path of %s is %s", entry, u.At)
		}
	}
}

package tree

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/stores/tavern"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

// tavernLand is a team's folder: documents, agents, inboxes and queues.
type tavernLand struct{}

func (tavernLand) layout() layouts.Layout { return taverndir.Layout{} }

func (tavernLand) root() layouts.Root { return layouts.Root{Name: ".tavern", Marker: "law"} }

var tavernPaths = []string{"docs/a.md", "docs/A.md", "docs/b.txt", "docs/d/a.md", "workflows/w.json", "agents/kettle/agent.md", "agents/kettle/notes.txt", "loose.txt"}

func (tavernLand) path(w *world) string {
	if there := slices.Sorted(maps.Keys(w.user.Files())); len(there) > 0 && w.random.IntN(3) > 0 {
		if p := there[w.random.IntN(len(there))]; !strings.HasSuffix(p, "~") && !strings.Contains(p, ".tally-tmp-") && !isCopy(p) {
			return p
		}
	}
	return tavernPaths[w.random.IntN(len(tavernPaths))]
}

func (tavernLand) text(w *world, p string) (text, mark string) {
	mark = w.mark()
	have := w.user.Files()[p]
	switch {
	case strings.HasSuffix(p, ".json") || strings.HasSuffix(p, ".jsonl"):
		quoted, _ := json.Marshal(mark)
		return have + string(quoted) + "\n", strings.TrimSpace(mark)
	case strings.HasPrefix(have, "---\n"):
		return have + mark, mark
	}
	return mark, mark
}

func (tavernLand) api(w *world) {
	ctx := context.Background()
	var err error
	mark := strings.TrimSpace(w.mark())
	docs := w.st.Documents()
	switch n := w.random.IntN(9); n {
	case 0, 1, 2:
		id := []string{"a", "A", "b.txt", "d/a"}[w.random.IntN(4)]
		w.say("log: write doc %s: %q", id, mark)
		_, err = docs.Save(ctx, "doc", id, tally.Write{Data: []byte(mark), ContentType: "text/markdown"})
	case 3:
		w.say("log: delete doc a")
		if _, err = docs.Delete(ctx, "doc", "a", 0, ""); errors.Is(err, tally.ErrNotFound) {
			err = nil
		}
	case 4:
		name := []string{"Kettle", "kettle", "Tea Pot"}[w.random.IntN(3)]
		w.say("log: agent %s", name)
		_, err = tavern.NewAgent(ctx, w.st, tavern.NewAgentOptions{Name: name, Assignment: mark})
	case 5:
		if agents := need(w.st.Sessions(ctx, events.KindAgent)); len(agents) > 0 {
			info := agents[0]
			a := tavern.AgentOf(w.st, strings.TrimPrefix(info.ID, "agent/"))
			w.say("log: %s is working", info.ID)
			if err = a.SetState(ctx, "working", ""); err != nil {
				w.say("  %v", err)
				err = nil
			}
		}
	case 6:
		w.say("log: send %s", mark)
		_, err = tavern.InboxOf(w.st, tavern.User).Send(ctx, tavern.Message{From: "user", Type: "note", Thread: "t", Body: tavern.Text(mark)})
	case 7:
		w.say("log: enqueue %s", mark)
		_, err = tavern.QueueOf(w.st, "build").Enqueue(ctx, tavern.Item{Body: []byte(mark)})
	case 8:
		w.say("log: workflow %s", mark)
		_, err = docs.Save(ctx, "workflow", "w", tally.Write{Data: []byte(`{"x":"` + mark + `"}`), ContentType: "application/json"})
	}
	must(w.t, err)
}

func (tavernLand) unknown() int { return 10 }

// A move of an agent's file writes one document, and archives a session and its document.
func (tavernLand) records() int { return 4 }

func (tavernLand) kinds() []string {
	return []string{events.KindSession, "doc", "workflow", "overlay", events.KindAgent, events.KindFile}
}

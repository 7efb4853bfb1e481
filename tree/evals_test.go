package tree

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/stores/evals"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

// evalsLand is one of conversations: logs that grow at both ends.
type evalsLand struct{}

func (evalsLand) layout() formats.Live { return tallydir.Layout{} }

func (evalsLand) root() formats.Root { return formats.Root{Name: "tally", Marker: "law"} }

func (evalsLand) unknown() int { return 10 }

func (evalsLand) kinds() []string { return []string{events.KindSession, events.KindFile} }

var evalsPaths = []string{"conversations/a/conversation.jsonl", "conversations/a/meta.json", "conversations/b/conversation.jsonl", "conversations/a/runs/tallies/run-1.json", "notes.txt"}

func (evalsLand) path(w *world) string {
	if there := slices.Sorted(maps.Keys(w.user.Files())); len(there) > 0 && w.random.IntN(3) > 0 {
		if p := there[w.random.IntN(len(there))]; !strings.HasSuffix(p, "~") && !strings.Contains(p, ".tally-tmp-") && !isCopy(p) {
			return p
		}
	}
	return evalsPaths[w.random.IntN(len(evalsPaths))]
}

func (evalsLand) text(w *world, p string) (text, mark string) {
	mark = strings.TrimSpace(w.mark())
	have := w.user.Files()[p]
	switch {
	case strings.HasSuffix(p, "conversation.jsonl"):
		return have + fmt.Sprintf(`{"conversationId":%q,"stepIndex":%d,"input":{"role":"user","content":%q},"output":[],"timestamp":"2026-01-23T13:37:18.912Z"}`+"\n", strings.Split(p, "/")[1], strings.Count(have, "\n"), mark), mark
	case strings.HasSuffix(p, "meta.json"):
		return fmt.Sprintf("{\n  \"id\": %q,\n  \"createdAt\": \"2026-01-23T13:37:18.912Z\",\n  \"x\": %q\n}", strings.Split(p, "/")[1], mark), mark
	case strings.HasSuffix(p, ".json"):
		return fmt.Sprintf("{\n  \"runId\": \"run-1\",\n  \"x\": %q\n}", mark), mark
	}
	return mark + "\n", mark
}

func (evalsLand) api(w *world) {
	ctx := context.Background()
	id := []string{"a", "b", "c"}[w.random.IntN(3)]
	mark := strings.TrimSpace(w.mark())
	said := need(json.Marshal(map[string]string{"role": "user", "content": mark}))
	var err error
	switch w.random.IntN(4) {
	case 0:
		w.say("log: save %s: %s", id, mark)
		_, _, err = evals.Save(ctx, w.st, id, &evals.Data{ID: id, Steps: []evals.Step{need(evals.NewStep(0, said))}})
	case 1, 2:
		w.say("log: append to %s: %s", id, mark)
		_, err = evals.Of(w.st, id).Append(ctx, need(evals.NewStep(1, said)))
	case 3:
		w.say("log: run of %s: %s", id, mark)
		_, err = evals.Of(w.st, id).Run(evals.TrajectoryRun, "run-"+mark).Save(ctx, []byte(`{"completed":true}`))
	}
	if err != nil {
		w.say("  %v", err)
	}
}

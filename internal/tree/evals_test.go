package tree

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/evals"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

// evalsLand has conversations: logs that grow at both ends.
type evalsLand struct{}

func (evalsLand) layout() layouts.Layout { return tallydir.Layout{} }

func (evalsLand) root() layouts.Root { return layouts.Root{Name: "tally", Marker: "law"} }

func (evalsLand) unknown() int { return 10 }

// A change of meta.json changes the session and each of its runs. api creates few runs.
func (evalsLand) records() int { return 8 }

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

func (l evalsLand) api(w *world) {
	ctx := context.Background()
	id := []string{"a", "a", "a", "b", "c"}[w.random.IntN(5)]
	mark := strings.TrimSpace(w.mark())
	said := need(json.Marshal(map[string]string{"role": "user", "content": mark}))
	var err error
	switch w.random.IntN(12) {
	case 0:
		w.say("log: save %s: %s", id, mark)
		_, _, err = evals.Save(ctx, w.st, id, &evals.Data{ID: id, Steps: []evals.Step{need(evals.NewStep(0, said))}})
	case 1, 2, 3, 4, 5:
		w.say("log: append to %s: %s", id, mark)
		_, err = evals.Of(w.st, id).Append(ctx, need(evals.NewStep(1, said)))
	case 6:
		w.say("log: append two to %s: %s", id, mark)
		_, err = evals.Of(w.st, id).Append(ctx, need(evals.NewStep(1, said)), need(evals.NewStep(2, said)))
	case 7:
		w.say("log: run of %s: %s", id, mark)
		_, err = evals.Of(w.st, id).Run(evals.TrajectoryRun, "run-"+mark).Save(ctx, []byte(`{"completed":true}`))
	default:
		err = l.odd(ctx, w, id, said)
	}
	if err != nil {
		w.say("  %v", err)
	}
}

// odd appends events that the API of conversations does not, but other programs may.
func (evalsLand) odd(ctx context.Context, w *world, id string, said events.Raw) error {
	sub := events.Session(w.st.Namespace(), id)
	o, err := w.st.Loader().Peek(ctx, sub)
	if err != nil || o.Offset() == 0 {
		return err
	}
	seen := o.First() + events.Offset(w.random.Uint64N(uint64(o.Offset()-o.First()+1)))
	turns := []events.Entry{{Thread: "main", Turn: said}, {Thread: []string{"main", "main", "other", "traces"}[w.random.IntN(4)], Turn: events.Raw("{\"a\":[1,\n2]}")}, {Thread: "main", Bytes: []byte{0xff}}}
	turns = turns[:1+w.random.IntN(3)]
	var p events.Payload
	var extensions []string
	switch w.random.IntN(8) {
	case 0, 1:
		p = &events.SessionRewound{To: seen, Reason: "test"}
	case 2, 3:
		p, extensions = &events.TurnAppended{Entries: turns}, []string{events.ExtBasis, seen.Padded()} // it may be stale
	case 4:
		p = &events.ThreadReplaced{Threads: map[string]events.Replacement{"main": {Items: []events.Item{{Keep: &[2]int{0, w.random.IntN(2)}}, {Turn: said}}}}, Others: "keep", Reason: "test"} // it may be rejected
	case 5:
		p = &events.TurnAppended{Entries: turns, Pins: map[string]map[int]bool{"main": {w.random.IntN(5): true}}} // it may be rejected
	case 6:
		f := events.FileFormat{FinalNewline: w.random.IntN(2) == 0, Separator: []string{"", "\r\n"}[w.random.IntN(2)], BOM: w.random.IntN(2) == 0, Mode: int64([]int{0, 0o600}[w.random.IntN(2)])}
		p = &events.TurnAppended{Entries: turns, Formats: map[string]events.FileFormat{"conversation.jsonl": f}}
	case 7:
		p = &events.SessionUpdated{Set: events.Fields{{Name: []string{"title", "status"}[w.random.IntN(2)], Value: []events.Raw{events.Raw("null"), events.Raw(`"archived"`)}[w.random.IntN(2)]}}}
	}
	e, err := events.New("urn:api", sub, p)
	if err != nil {
		return err
	}
	if extensions != nil {
		e = e.WithExtension(extensions[0], extensions[1])
	}
	w.say("log: %s of %s %v: %s", e.Type, id, extensions, e.Data)
	ack, err := w.st.Append(ctx, sub, log.At(o.Offset()), e)
	if err == nil && e.Type == events.TypeSessionRewound { // a producer that does not know it is stale
		w.project()
		late := need(events.New("urn:api", sub, &events.TurnAppended{Entries: turns[:1]})).WithExtension(events.ExtBasis, o.Offset().Padded())
		for _, e := range []events.Event{need(events.New("urn:api", sub, &events.TurnAppended{Entries: turns})), late} {
			w.say("log: %s of %s %v: %s", e.Type, id, e.Extensions, e.Data)
			if ack, err = w.st.Append(ctx, sub, log.At(ack.Last), e); err != nil {
				return err
			}
			if w.random.IntN(2) == 0 {
				w.project()
			}
		}
	}
	return err
}

package perstack_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// Unusual values are returned unchanged, or refused by name without traces.
func TestHostile(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	ctx, h := t.Context(), perstack.JobOf(st, "j")
	for _, typ := range []string{"a-b", "..", "../../x", "a.b.c", "\u001b[31m", strings.Repeat("t", 10<<10), "StartRun"} {
		need(h.Record(ctx, event("j", "r", "e", typ, 1, 1)))
	}
	if list := need(h.Events(ctx, "r", perstack.AllSteps)); len(list) != 7 || list[4].Type != "\u001b[31m" {
		t.Errorf("got %d events", len(list))
	}
	had := records(t, st)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, raw := range map[string]string{
		"no JSON":         `{"id":`,
		"a list":          `[]`,
		"depth 10^5":      `{"id":"e","x":` + deep(100_000) + `}`,
		"depth 1000":      `{"id":"e","expertKey":"","timestamp":1,"jobId":"j","runId":"r","stepNumber":1,"type":"t","messages":[` + deep(998) + `]}`,
		"not a number":    `{"id":"e","expertKey":"","timestamp":NaN,"jobId":"j","runId":"r","stepNumber":1,"type":"t"}`,
		"10^20":           `{"id":"e","expertKey":"","timestamp":100000000000000000000,"jobId":"j","runId":"r","stepNumber":1,"type":"t"}`,
		"a job of others": `{"id":"e","expertKey":"","timestamp":1,"jobId":"k","runId":"r","stepNumber":1,"type":"t"}`,
		"not UTF-8":       "{\"id\":\"\xff\"}",
	} {
		_, err := h.RecordRaw(ctx, events.Raw(raw))
		if invalid, ok := errors.AsType[*events.InvalidError](err); !ok || invalid.Field == "" {
			t.Errorf("%s: got the error %v", name, err)
		}
		if _, err := h.SaveCheckpointRaw(ctx, events.Raw(raw)); err == nil {
			t.Errorf("%s was accepted as a checkpoint", name)
		}
	}
	if n := records(t, st); n != had {
		t.Errorf("the refused calls wrote %d records", n-had)
	}
	if _, err := perstack.JobOf(st, "never").Load(ctx); !errors.Is(err, tally.ErrNotFound) || records(t, st) != had {
		t.Errorf("a read created a job: %v", err)
	}
	if tree := need(perstack.JobOf(st, "never").Tree(ctx)); len(tree) != 0 {
		t.Errorf("the tree of the missing job is %v", tree)
	}
}

// A session of another kind with a job's name is not written to.
func TestOtherKind(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	need(st.Session("job/j").Create(t.Context(), events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-01T00:00:00Z"}))
	h := perstack.JobOf(st, "j")
	_, err := h.SaveCheckpoint(t.Context(), checkpoint("j", "r", "c", 1, nil))
	_, err2 := h.Save(t.Context(), perstack.CreateInitialJob("j", "coder"))
	for _, err := range []error{err, err2} {
		if _, ok := errors.AsType[*tally.KindError](err); !ok {
			t.Errorf("got the error %v", err)
		}
	}
}

// A message that was compacted away stays in the checkpoints that had it.
func TestReplacedThread(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	ctx, h := t.Context(), perstack.JobOf(st, "j")
	need(h.SaveCheckpoint(ctx, checkpoint("j", "r", "c1", 1, messages(0, 4))))
	s := st.Session("job/j")
	need(s.Load(ctx, ""))
	_, err := s.Append(ctx, need(s.Unchanged(ctx)), &events.ThreadReplaced{Reason: "compact", Others: "keep",
		Threads: map[string]events.Replacement{"run/r": {Items: []events.Item{{Keep: &[2]int{2, 4}}, {Turn: message(9)}}}}})
	must(t, err)
	need(h.SaveCheckpoint(ctx, checkpoint("j", "r", "c2", 2, messages(0, 5))))
	for id, want := range map[string]int{"c1": 4, "c2": 5} {
		have := need(perstack.JobOf(st, "j").Checkpoint(ctx, id)).Messages
		if len(have) != want || string(have[0]) != string(message(0)) || string(have[want-1]) != string(message(want-1)) {
			t.Errorf("%s has %d messages: %s", id, len(have), have)
		}
	}
}

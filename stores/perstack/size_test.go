package perstack_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// A log grows only by new content: if checkpoints and events of a job repeat all messages, each message is stored once.
func TestSize(t *testing.T) {
	testkit.NotUnderRace(t)
	st := storetest.Memory(t, tally.Config{})
	ctx, h := t.Context(), perstack.JobOf(st, "j")
	said, files, count := 0, 0, 0
	record := func(e perstack.Event) {
		files, count = files+len(need(e.Raw())), count+1
		need(h.Record(ctx, e))
	}
	field := func(name string, list []events.Raw) events.Field {
		return events.Field{Name: name, Value: rawjson.AppendArray(nil, list)}
	}
	var list []events.Raw
	steps := int64(100)
	if !testkit.Full() {
		steps = 50
	}
	for step := int64(1); step <= steps; step++ {
		fresh := []events.Raw{long(2*int(step), 4<<10), long(2*int(step)+1, 4<<10)}
		for _, m := range fresh {
			said += len(m)
		}
		old := need(checkpoint("j", "r", fmt.Sprint("c", step), step, list).Raw())
		record(event("j", "r", fmt.Sprint("g", step), "startGeneration", step, step, field("messages", list)))
		record(event("j", "r", fmt.Sprint("f", step), "finishAllToolCalls", step, step, field("newMessages", fresh)))
		list = append(list, fresh...)
		c := checkpoint("j", "r", fmt.Sprint("c", step+1), step+1, list)
		files, count = files+len(need(c.Raw())), count+1
		need(h.SaveCheckpoint(ctx, c))
		record(event("j", "r", fmt.Sprint("n", step), "continueToNextStep", step, step, events.Field{Name: "checkpoint", Value: old},
			events.Field{Name: "step", Value: append(rawjson.AppendArray([]byte(`{"newMessages":`), fresh), '}')}, events.Field{Name: "nextCheckpoint", Value: need(c.Raw())}))
	}
	have := 0
	for rec, err := range st.Log.Read(ctx, events.Range{}) {
		must(t, err)
		header, data := events.EncodeBinary(rec.Event)
		for name, values := range header {
			have += len(name) + len(strings.Join(values, ""))
		}
		have += len(data)
	}
	t.Logf("the log has %d bytes; %d were said in %d files of %d bytes", have, said, count, files)
	if limit := said*3/2 + count<<10; have > limit {
		t.Errorf("the log has %d bytes, want at most %d", have, limit)
	}
	if c := need(h.Checkpoint(ctx, fmt.Sprint("c", steps+1))); int64(len(c.Messages)) != 2*steps {
		t.Errorf("the last checkpoint has %d messages", len(c.Messages))
	}
}

// long returns a message of some size.
func long(n, size int) events.Raw {
	return events.Raw(fmt.Sprintf(`{"id":"m%d","type":"userMessage","contents":[{"id":"p","type":"textPart","text":"%s"}]}`, n, strings.Repeat(fmt.Sprint(n), size/len(fmt.Sprint(n)))))
}

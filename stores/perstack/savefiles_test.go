package perstack_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// A save appends its steps to the log one after the other. It waits for files once, after the last one. If a file does
// not show the save, the error comes with the acknowledgement.
func TestShown(t *testing.T) {
	var asked []events.Offset
	var answer error
	st := storetest.Memory(t, tally.Config{Host: tally.Host{Shows: func(_ context.Context, at events.Offset, _ ...events.Subject) error {
		asked = append(asked, at)
		return answer
	}}})
	h, ctx := perstack.JobOf(st, "job"), t.Context()
	for i := range 2 {
		t.Run("B-41 a save waits for the files", func(t *testing.T) {
			asked, answer = nil, nil
			if i == 1 {
				answer = &events.TreeError{Tree: "t", Err: errors.New("full")}
			}
			ack, err := h.SaveCheckpoint(ctx, checkpoint("job", "r", fmt.Sprint("c", i), int64(i), messages(0, i+1)))
			if !errors.Is(err, answer) || ack.Last == 0 {
				t.Fatalf("%+v, %v, want %v", ack, err, answer)
			}
			head, herr := st.Log.Head(ctx)
			if herr != nil || len(asked) != 1 || asked[0] != head {
				t.Errorf("waited for files as of %v, want one wait as of %v: %v", asked, head, herr)
			}
		})
	}
}

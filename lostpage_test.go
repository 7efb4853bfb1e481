package tally_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

// A caller that reads a part of a list knows that records are lost.
func TestLostPage(t *testing.T) {
	t.Run("net T2 the first page of a list, and no other, says that a record is lost", func(t *testing.T) {
		mem := sharedMem{memlog.New(memlog.Config{})}
		st := on(t, mem, tally.Config{})
		for n := range 5 {
			mustSave(t, st.Documents(), "doc", fmt.Sprint(n), text("x"))
		}
		st.Log.Lose([]log.Hole{{Offset: 2, Subject: events.Document("default", "doc", "1").NATS()}})
		after := ""
		for page := 0; page == 0 || after != ""; page++ {
			_, next, err := st.Documents().List(t.Context(), projector.DocumentQuery{Kind: "doc", Limit: 2, After: after})
			if _, isLost := errors.AsType[*projector.HoleError](err); isLost != (page == 0) || err != nil && !isLost {
				t.Errorf("page %d: %v", page, err)
			}
			after = next
		}
	})
}

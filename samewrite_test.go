package tally_test

import (
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log/memlog"
)

func TestSameWrite(t *testing.T) {
	t.Run("net T2 a write with the id of another one is refused if anything in it differs", func(t *testing.T) {
		st := on(t, sharedMem{memlog.New(memlog.Config{})}, tally.Config{})
		d, ctx := st.Documents(), t.Context()
		first := text("x")
		first.ID = "id"
		rev := mustSave(t, d, "doc", "x", first)
		if again := mustSave(t, d, "doc", "x", first); again.Offset != rev.Offset {
			t.Errorf("the same write made the revisions %v and %v", rev.Offset, again.Offset)
		}
		for what, change := range map[string]func(*tally.Write){
			"data":       func(w *tally.Write) { w.Data = []byte("y") },
			"type":       func(w *tally.Write) { w.ContentType = "text/html" },
			"title":      func(w *tally.Write) { w.Title = "y" },
			"attributes": func(w *tally.Write) { w.Attributes = map[string]string{"a": "y"} },
			"links":      func(w *tally.Write) { w.Links = []events.Link{link("see", "y")} },
			"end":        func(w *tally.Write) { w.ExpiresAt = time.Now().Add(time.Hour) },
		} {
			w := first
			if change(&w); !invalid(second(d.Save(ctx, "doc", "x", w))) {
				t.Errorf("a write with other %s: not refused", what)
			}
		}
	})
}

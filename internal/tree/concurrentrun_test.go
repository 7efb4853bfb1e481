package tree

import (
	"context"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storagetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// TestRunDropsNothing starts Run between the apply and the commit of a record: the files show the record nevertheless.
func TestRunDropsNothing(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	st, files := openStore(t), storagetest.NewMem(storagetest.MemOptions{})
	tr := need(New(Config{Name: "t", Layout: plainLayout{}, Root: layouts.Root{Name: layouts.LiveRoot}, Storage: files,
		Target: st, Head: st.Log.Durable, Way: Both}))
	defer tr.Close()
	_, _, err := tr.Begin(ctx)
	must(t, err)
	doc := events.Document(st.Namespace(), plainKind, "a")
	need(st.Append(ctx, doc, log.Any, events.Event{Source: "urn:t", Type: events.TypeDocumentWritten, Subject: doc, ContentType: events.ContentTypeRaw, Data: []byte("one")}))
	rec := need(st.Log.Last(ctx, doc))
	must(t, tr.Apply(ctx, projector.Decode(rec)))
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(ctx) }()
	for deadline := time.Now().Add(testkit.Patience(time.Minute)); tr.Status().Watching == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Run does not follow the files")
		}
	}
	must(t, tr.Commit(ctx, projector.Cursor{Offset: rec.Offset, EventID: rec.ID}))
	if text := files.Foreign().Files()["a"]; text != "one" {
		t.Errorf("the file has %q", text)
	}
	stop()
	must(t, heard(t, ended, "Run to return after its context has ended"))
}

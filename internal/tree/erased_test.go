package tree

import (
	"context"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

// rewritable is a log in memory whose records can be erased.
type rewritable struct{ log.Backend }

// Files of erased documents are written again. Nothing is taken in, and nothing is kept as a conflict.
func TestErasedFiles(t *testing.T) {
	b := &rewritable{memlog.New(memlog.Config{})}
	l := need(log.OpenOn(t.Context(), b, log.Config{}))
	st := need(tally.Open(t.Context(), l, tally.Config{}))
	defer st.Close()
	sub, other := events.Document("", plainKind, "plan"), events.Document("", plainKind, "other")
	for _, s := range []events.Subject{sub, other} {
		e := events.Event{ID: s.ID, Source: "urn:test", Type: events.TypeDocumentWritten, Subject: s, ContentType: events.ContentTypeRaw, Data: []byte(testkit.Canary(s.ID))}
		need(l.Append(t.Context(), s, log.Any, e))
	}
	dir := t.TempDir()
	tree := newTree(Config{Name: "t", Layout: plainLayout{}, Storage: need(layouts.OpenDir(dir)), Target: st, Head: st.Log.Durable}, &memoryManifest{})
	r := &projector.Runner{Log: st.Log, View: tree}
	must(t, r.CatchUp(t.Context(), nil))
	if found, _ := testkit.CanaryFiles(t, dir); len(found) != 2 {
		t.Fatalf("canaries are in %v, want two files", found)
	}
	erased := memlog.New(memlog.Config{})
	for rec, err := range l.Read(t.Context(), events.Range{}) {
		must(t, err)
		e := rec.Event
		if rec.Subject == sub {
			e = need(e.Erase("r7k2p9"))
		}
		message := log.Outgoing{ID: e.MsgID(), Header: events.AppendHeader(nil, e), Data: e.Data}
		need(erased.Publish(context.Background(), log.Publication{Writes: []log.Write{{Subject: e.Subject.NATS(), Messages: []log.Outgoing{message}}}}))
	}
	b.Backend = erased
	must(t, r.Refold(t.Context(), []events.Subject{sub}))
	tree.mu.Lock()
	tree.drop(t.Context(), tree.c.Now().Add(2*linger))
	tree.mu.Unlock()
	if found, _ := testkit.CanaryFiles(t, dir); len(found) != 1 || found[0] != "other" {
		t.Errorf("canaries are in %v, want the other document's file", found)
	}
	if head := need(l.Head(t.Context())); head != 2 {
		t.Errorf("the log has %v records, want 2", head)
	}
}

package tree

import (
	"context"
	"io"
	"strings"
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

// An erasure names edits that came from files of its subjects and were not taken in.
func TestUnreachedEdits(t *testing.T) {
	st := need(tally.Open(t.Context(), need(log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{})), tally.Config{}))
	defer st.Close()
	plan, other := events.Document("", plainKind, "plan"), events.Document("", plainKind, "other")
	tree := newTree(Config{Name: "t", Layout: plainLayout{}, Storage: need(layouts.OpenDir(t.TempDir())), Target: st, Head: st.Log.Durable, MaxFile: 1 << 20}, &memoryManifest{})
	tree.mu.Lock()
	for _, sub := range []events.Subject{plan, other} {
		must(t, tree.keep(t.Context(), keeping{path: sub.ID + ".md", entry: sub, sum: sub.ID, reason: "test", read: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("edit")), nil }}))
		tree.out["kept "+sub.ID] = &displaced{path: "kept " + sub.ID, from: sub.ID + ".md", entry: sub}
		tree.skipped["kept "+sub.ID] = "no room"
	}
	tree.out["passing"] = &displaced{path: "passing", from: "plan.md", entry: plan} // it goes soon
	tree.mu.Unlock()
	lines := need(tree.Unreached(t.Context(), []events.Subject{plan, events.Session("", "s")}))
	if len(lines) != 2 || !strings.Contains(lines[0], "is an edit of plan.md that was not taken in") || !strings.Contains(lines[0], "forget document/conflict/") ||
		lines[1] != "kept plan is an edit of plan.md that cannot be stored: no room" {
		t.Errorf("got %q", lines)
	}
}

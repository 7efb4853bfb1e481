package tally_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

func historyAndAsOf(t *testing.T, d *tally.Documents) {
	ctx := t.Context()
	var revs []projector.Revision
	for i := range 5 {
		revs = append(revs, mustSave(t, d, "doc", "d33", text(fmt.Sprint("text ", i+1))))
	}
	ack, err := d.Delete(ctx, "doc", "d33", 0, "done")
	if err != nil {
		t.Fatal(err)
	}
	last := mustCreate(t, d, "doc", "d33", text("text 7"))
	for position, want := range map[string]string{
		"": "text 7", "head": "text 7", "#1": "text 1", "#5": "text 5", "#6": "", "#7": "text 7", "#8": "", "~0": "text 7", "~1": "", "~2": "text 5", "~7": "", "start": "",
		revs[0].Offset.String(): "text 1", (revs[1].Offset - 1).String(): "text 1", ack.Last.String(): "", last.Offset.String(): "text 7", "@9007199254740991": "text 7",
		(revs[0].Offset - 1).String(): "", "e:" + revs[2].ID: "text 3", "2000-01-01": "", "2999-01-01": "text 7", "-1000h": "",
	} {
		doc, err := d.ReadAt(ctx, "doc", "d33", position)
		if want == "" && !errors.Is(err, tally.ErrNotFound) || want != "" && (err != nil || string(doc.Data) != want) {
			t.Errorf("at %q: got %v, %v, want %q", position, doc, err, want)
		}
	}
	for _, position := range []string{"main#1", "#0", "nonsense", "@x"} {
		if _, err := d.ReadAt(ctx, "doc", "d33", position); !invalid(err) {
			t.Errorf("at %q: got %v, want an *InvalidError", position, err)
		}
	}
	all, err := d.History(ctx, "doc", "d33", 0, 0)
	if err != nil || len(all) != 7 || all[0].Offset != last.Offset || !all[1].Deleted || all[1].Reason != "done" || all[6].Offset != revs[0].Offset {
		t.Fatalf("history: got %+v, %v, want 7 revisions with the deletion", all, err)
	}
	var paged []tally.Change
	for below := events.Offset(0); ; below = paged[len(paged)-1].Offset {
		page, err := d.History(ctx, "doc", "d33", below, 2)
		if err != nil {
			t.Fatal(err)
		}
		if paged = append(paged, page...); len(page) < 2 {
			break
		}
	}
	if len(paged) != len(all) {
		t.Errorf("%d revisions by pages, want %d", len(paged), len(all))
	}
	for i, c := range all {
		doc, err := c.Read(ctx)
		if c.Deleted != errors.Is(err, tally.ErrNotFound) || err == nil && string(doc.Data) != fmt.Sprint("text ", 7-i) {
			t.Errorf("change %d: got %v, %v", i, doc, err)
		}
	}
}

func mustHistory(t *testing.T, d *tally.Documents, kind, id string) []tally.Change {
	t.Helper()
	list, err := d.History(t.Context(), kind, id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A document expires by the log's time. The clock of this machine does not matter.
func TestDocumentExpires(t *testing.T) {
	now := time.Date(2026, 8, 22, 10, 0, 0, 0, time.UTC)
	l := logtest.OpenOn(t, memlog.New(memlog.Config{Now: func() time.Time { return now }}), log.Config{})
	st, err := tally.Open(t.Context(), l, tally.Config{})
	if err != nil {
		t.Fatal(err)
	}
	d, ctx := st.Documents(), t.Context()
	w := text("soon gone")
	w.ExpiresAt = now.Add(time.Hour)
	rev := mustCreate(t, d, "doc", "x", w)
	now = now.Add(365 * 24 * time.Hour) // the clock alone does not make the document expire
	mustHold(t, d, "doc", "x", "soon gone")
	if list, _, err := d.List(ctx, projector.DocumentQuery{}); err != nil || len(list) != 1 {
		t.Errorf("list before the expiry: got %v, %v, want 1 document", list, err)
	}
	now = rev2time(rev).Add(59 * time.Minute)
	mustSave(t, d, "doc", "y", text("before"))
	mustHold(t, d, "doc", "x", "soon gone")
	now = now.Add(time.Minute)
	mustSave(t, d, "doc", "y", text("then"))
	mustHold(t, d, "doc", "x", "")
	if list, _, err := d.List(ctx, projector.DocumentQuery{}); err != nil || len(list) != 1 || list[0].Subject.ID != "y" {
		t.Errorf("list after the expiry: got %v, %v, want y", list, err)
	}
	_, update := d.Update(ctx, "doc", "x", rev.Offset, text("late"))
	_, deletion := d.Delete(ctx, "doc", "x", rev.Offset, "")
	tx := d.Tx(ctx, func(tx *tally.Tx) error { _, err := tx.Read(ctx, "doc", "x"); return err })
	for i, err := range []error{update, deletion, tx} {
		if !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("call %d on an expired document: got %v, want ErrNotFound", i, err)
		}
	}
	if doc, err := d.ReadAt(ctx, "doc", "x", rev.Offset.String()); err != nil || string(doc.Data) != "soon gone" {
		t.Errorf("as of its revision: got %v, %v, want the content", doc, err)
	}
	mustCreate(t, d, "doc", "x", text("again"))
	mustHold(t, d, "doc", "x", "again")
}

func rev2time(rev projector.Revision) time.Time {
	at, _ := rev.Meta.ExpiresAt.Time()
	return at.Add(-time.Hour)
}

func purges(t *testing.T, st *tally.Store) {
	ctx, d := t.Context(), st.Documents()
	first := mustCreate(t, d, "doc", "secret", text("the password"))
	if _, err := d.Rename(ctx, "doc", "secret", 0, "harmless"); err != nil {
		t.Fatal(err)
	}
	old := mustHistory(t, d, "doc", "harmless")
	if err := d.Purge(ctx, "doc", "harmless"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"secret", "harmless"} {
		mustHold(t, d, "doc", id, "")
		if list, err := d.History(ctx, "doc", id, 0, 0); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("history of purged %s: got %v, %v, want ErrNotFound", id, list, err)
		}
		if doc, err := d.ReadAt(ctx, "doc", id, first.Offset.String()); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("read of purged %s: got %v, %v, want ErrNotFound", id, doc, err)
		}
	}
	for _, c := range old {
		if doc, err := c.Read(ctx); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("read of a change from before the purge: got %v, %v, want ErrNotFound", doc, err)
		}
	}
	if err := d.Purge(ctx, "doc", "harmless"); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("purged twice: got %v, want ErrNotFound", err)
	}
	mustCreate(t, d, "doc", "a", text("1"))
	if _, err := d.Rename(ctx, "doc", "a", 0, "b"); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, d, "doc", "a", text("another document"))
	if err := d.Purge(ctx, "doc", "b"); !errors.Is(err, tally.ErrExists) {
		t.Errorf("purge while another document has the earlier name: got %v, want ErrExists", err)
	}
	mustHold(t, d, "doc", "a", "another document")
	mustHold(t, d, "doc", "b", "1")
}

// A purge removes a blob with the last document that names it, also where a purge was cut short.
func purgesBlobs(t *testing.T, st *tally.Store) {
	if !strings.Contains(t.Name(), "/memory/") {
		testkit.NotUnderRace(t) // its nine megabytes take half a minute under the detector
		testkit.OnlyFull(t, "the store in memory plays it")
	}
	ctx, d := t.Context(), st.Documents()
	large := bytes.Repeat([]byte("large "), 9<<20/6)
	for _, id := range []string{"large", "the same"} {
		mustCreate(t, d, "doc", id, tally.Write{Data: large})
	}
	for i, id := range []string{"large", "the same"} {
		if err := d.Purge(ctx, "doc", id); err != nil {
			t.Fatal(err)
		}
		_, err := st.Blob(ctx, sum(large))
		if _, gone := errors.AsType[*projector.BlobError](err); gone != (i == 1) || !gone && err != nil {
			t.Errorf("blob after the purge of %q: got %v, want it gone after the second purge", id, err)
		}
		if err := d.Purge(ctx, "doc", id); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("%s purged twice: got %v, want ErrNotFound", id, err)
		}
	}
	mustCreate(t, d, "doc", "before", tally.Write{Data: large})
	mustSave(t, d, "doc", "before", text("small"))
	if _, err := d.Rename(ctx, "doc", "before", 0, "after"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"before", "after"} { // a purge that was cut short
		erase(t, st, "doc", id, events.ReasonPurged)
	}
	if err := d.Purge(ctx, "doc", "after"); err != nil {
		t.Errorf("repeat of a purge that was cut short: %v", err)
	}
	if _, err := st.Blob(ctx, sum(large)); err == nil {
		t.Error("the blob of a purged earlier name can be read")
	}
	mustCreate(t, d, "doc", "large", tally.Write{Data: large})
	if doc, err := d.Read(ctx, "doc", "large"); err != nil || !bytes.Equal(doc.Data, large) {
		t.Errorf("content written again after its purge: %v", err)
	}
}

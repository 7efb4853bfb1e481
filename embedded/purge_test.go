package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// canary is the content to purge.
const canary = "canary"

// purging is a store in which a document is purged.
type purging struct {
	*testing.T
	st  *tally.Store
	doc events.Subject
}

func (p purging) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// add appends an event to the end of a subject.
func (p purging) add(sub events.Subject, e events.Event) events.Offset {
	p.Helper()
	last, err := p.st.Log.Last(p.Context(), sub)
	if !errors.Is(err, tally.ErrNotFound) {
		p.must(err)
	}
	ack, err := p.st.Append(p.Context(), sub, log.At(last.Offset), e)
	p.must(err)
	return ack.Last
}

func (p purging) write(sub events.Subject, meta events.DocMeta, data string) events.Offset {
	p.Helper()
	return p.add(sub, events.Event{Type: events.TypeDocumentWritten, ContentType: "text/" + canary, Data: []byte(data)}.WithExtension(events.ExtDoc, meta.String()))
}

// writeInUnit writes the document and another one in one batch, of which the log keeps a copy.
func (p purging) writeInUnit(meta events.DocMeta) {
	p.Helper()
	var parts []log.Part
	for _, sub := range []events.Subject{p.doc, events.Document("", "doc", "b")} {
		e := p.st.Stamp(events.Event{Type: events.TypeDocumentWritten, Subject: sub, Data: []byte("text")})
		if sub == p.doc {
			e.Data = []byte(canary)
			e = e.WithExtension(events.ExtDoc, meta.String())
		}
		parts = append(parts, log.Part{Subject: sub, Expect: log.Any, Events: []events.Event{e}})
	}
	_, err := p.st.Log.AppendAll(p.Context(), parts...)
	p.must(err)
	copies := 0
	for rec, err := range p.st.Log.Read(p.Context(), events.Range{Kind: events.KindUnit}) {
		p.must(err)
		if bytes.Contains(rec.Data, []byte(p.doc.ID)) {
			copies++
		}
	}
	if copies == 0 {
		p.Fatal("the log keeps no copy: the test shows nothing")
	}
}

func (p purging) purge(sub events.Subject) events.Offset {
	p.Helper()
	e, err := events.New("urn:test", sub, &events.DocumentDeleted{Reason: events.ReasonPurged})
	p.must(err)
	return p.add(sub, e)
}

// shown waits until the views have reached an offset.
func (p purging) shown(at events.Offset) {
	p.Helper()
	for _, view := range []string{"catalog", "search", "work"} {
		p.must(p.st.Wait(p.Context(), view, at))
	}
}

// fill writes the document in every way that shows its content. It returns the offset of a record of each sort:
// content, content by reference, and content to which a session refers as well.
func (p purging) fill() (offsets []events.Offset) {
	p.Helper()
	large, err := events.Encode(&events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`"` + strings.Repeat("shared ", events.MaxData/6) + `"`)}}})
	p.must(err)
	meta := events.DocMeta{Title: canary + "-title", Owner: canary + "-owner", Layer: canary, Attributes: map[string]string{canary: canary},
		Links: []events.Link{{Rel: canary, To: "document/doc/" + canary}}}
	offsets = append(offsets,
		p.write(p.doc, meta, canary),
		p.write(p.doc, meta, strings.Repeat(canary, events.MaxData/5)),
		p.write(p.doc, meta, string(large)))
	_, err = p.st.Append(p.Context(), events.Session("", "s"), log.Any, events.Event{Type: events.TypeTurnAppended, Data: large})
	p.must(err)
	for i := range 300 {
		p.write(p.doc, meta, fmt.Sprint(canary, i))
	}
	p.writeInUnit(meta)
	return offsets
}

// grep returns the files below a directory that contain the canary, except those of the log.
func (p purging) grep(dir string) (found []string) {
	p.Helper()
	p.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // the snapshotter removed the file meanwhile
			return nil
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "jetstream":
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if bytes.Contains(data, []byte(canary)) {
			found = append(found, filepath.Base(path))
		}
		return err
	}))
	return found
}

// No reader gets purged content: not as of any position, not in the records as they are shown, in lists, in search, in
// stored states of documents, nor by its blob, unless something else refers to that. In the store's directory only the
// log still contains it.
func TestD65PurgeReachesEveryReader(t *testing.T) {
	testkit.OnlyFull(t, "TestDocuments of package tally plays D-65")
	testkit.NotUnderRace(t) // TestDocuments runs purges there
	t.Parallel()
	dir := t.TempDir()
	open := func() *tally.Store {
		st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir, Store: filepath.Join(dir, "store"), Own: true})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	p := purging{t, open(), events.Document("", "doc", "a")}
	offsets := p.fill()
	last, err := p.st.Loader().Document(t.Context(), p.doc, 0)
	p.must(err)
	for _, err := range p.st.Loader().Revisions(t.Context(), p.doc, 0) { // this stores the states
		p.must(err)
	}
	p.shown(last.Head)
	if found := fmt.Sprint(p.grep(filepath.Join(dir, "store"))); !strings.Contains(found, "views.db") || !strings.Contains(found, "revisions.") {
		t.Fatalf("before the purge, only %s contain the canary: the test shows nothing", found)
	}

	blobs, err := p.st.Loader().Unreferenced(t.Context(), p.doc.Namespace, []events.Subject{p.doc}, func(rec events.Record) events.Record {
		if rec.Subject == p.doc {
			rec.Event = events.Event{}
		}
		return rec
	})
	p.must(err)
	if len(blobs) != 1 {
		t.Fatalf("got %d blobs without another reference, want 1 of 2", len(blobs))
	}
	p.purge(p.doc)
	purged := p.purge(blobs[0])
	p.shown(purged)
	p.seesNothing(t.Context(), offsets, blobs[0].ID)
	var left []string // a view shows a purge a moment before its write-ahead log is empty
	for until := time.Now().Add(testkit.Patience(time.Minute)); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		left = slices.DeleteFunc(p.grep(filepath.Join(dir, "store")), func(name string) bool {
			return strings.HasPrefix(name, "revisions.") // the snapshotter removes this file later
		})
		if len(left) == 0 {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("the canary is still in %v", left)
	}
	p.must(p.st.Close())
	if found := p.grep(filepath.Join(dir, "store")); len(found) > 0 {
		t.Errorf("after close, the canary is still in %v", found)
	}
	p.st = open()
	defer p.st.Close()
	p.shown(purged)
	p.seesNothing(t.Context(), offsets, blobs[0].ID)
}

// seesNothing fails if any reader returns the canary.
func (p purging) seesNothing(ctx context.Context, offsets []events.Offset, blob string) {
	p.Helper()
	l := p.st.Loader()
	for _, at := range append([]events.Offset{0}, offsets...) {
		if d, err := l.Document(ctx, p.doc, at); !errors.Is(err, tally.ErrNotFound) || d.Data != nil {
			p.Errorf("at %v: %v", at, err)
		}
	}
	for rec, err := range l.Shown(ctx, p.st.Log.Read(ctx, events.Range{})) {
		p.must(err)
		if spelled := fmt.Sprintf("%s %v %s", rec.Data, rec.Extensions, rec.ContentType); strings.Contains(spelled, canary) {
			p.Errorf("record %v is shown as %.100s", rec.Offset, spelled)
		}
	}
	if rec, err := l.Record(ctx, offsets[1]); err != nil || !rec.Purged || len(rec.Data) > 0 {
		p.Errorf("record %v: %d bytes, %v", offsets[1], len(rec.Data), err)
	}
	h, err := l.History(ctx, p.doc)
	if err != nil || len(h.Revisions) != 1 || !h.Revisions[0].IsPurge() {
		p.Errorf("history: %+v, %v", h, err)
	}
	r, err := catalog.Open(ctx, p.st.ViewsDir())
	p.must(err)
	defer r.Close()
	list, _, err := r.Documents(ctx, projector.DocumentQuery{Kind: "doc", Deleted: true})
	if err != nil || len(list) != 2 || strings.Contains(fmt.Sprint(list), canary) || list[0].SHA256 != "" {
		p.Errorf("the list has %+v, %v", list, err)
	}
	if _, err := p.st.Blob(ctx, blob); err == nil {
		p.Error("the blob can be read")
	}
	s, err := l.Session(ctx, events.Session("", "s"), 0)
	if err != nil || len(s.Damaged) > 0 || len(s.Threads.Turns("main")) != 1 {
		p.Errorf("the session that refers to the other blob: %v, %v", s, err)
	}
	v, err := l.Verify(ctx, nil)
	if err != nil || len(v.Findings) > 0 {
		p.Errorf("verify finds %v, %v", v.Findings, err)
	}
}

package projector_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// tail is a log in memory that finds the last record of a subject at once, and counts its reads.
type tail struct {
	testkit.Records
	read int
	lost events.Offset // of any subject
}

func (s *tail) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for rec, err := range s.Records.Read(ctx, r) {
			if s.read++; !yield(rec, err) {
				return
			}
		}
	}
}

func (s *tail) Record(ctx context.Context, at events.Offset) (events.Record, error) {
	s.read++
	return s.Records.Record(ctx, at)
}

func (s *tail) Last(_ context.Context, sub events.Subject) (events.Record, error) {
	s.read++
	for _, rec := range slices.Backward(s.Records) {
		if rec.Subject == sub {
			return rec, nil
		}
	}
	return events.Record{}, projector.ErrNotFound
}

func (s *tail) Head(context.Context) (events.Offset, error) {
	return s.Records[len(s.Records)-1].Offset, nil
}

func (s *tail) LostBehind(_ events.Subject, at events.Offset) bool { return s.lost > at }

// longDocument returns the log of a document with the given number of revisions of 4 KiB.
func longDocument(t testing.TB, revisions int) testkit.Records {
	st := &story{t: t}
	for i := range revisions {
		st.write(recipe, fmt.Sprintf("%04096d", i))
	}
	return st.records
}

// Reading the newest content of a document costs one record, with 10,000 revisions as with one.
func TestNewestIsOneRecord(t *testing.T) {
	for _, n := range []int{1, 10_000} {
		src := &tail{Records: longDocument(t, n)}
		d, err := (&projector.Loader{Source: src}).Document(t.Context(), recipe, 0)
		if err != nil || string(d.Data) != fmt.Sprintf("%04096d", n-1) || d.Head != events.Offset(n) {
			t.Errorf("of %d revisions: got another one, or %v", n, err)
		}
		if src.read != 1 {
			t.Errorf("of %d revisions: read %d records, want 1", n, src.read)
		}
	}
}

// The type of the last record decides how the newest revision is found, but not which one is found.
func TestNewestBehindOthers(t *testing.T) {
	base := longDocument(t, 600)
	content := func(n int) string { return fmt.Sprintf("%04096d", n) }
	for name, c := range map[string]struct {
		add    func(st *story)
		want   string // "": not found
		reason string // of the deletion
		head   events.Offset
	}{
		"void":                  {func(st *story) { st.write(recipe, "void", "{") }, content(599), "", 601},
		"of another vocabulary": {func(st *story) { st.event(events.Event{Source: "urn:test", Type: "com.example.x", Subject: recipe}) }, content(599), "", 601},
		"deleted":               {func(st *story) { st.add(recipe, &events.DocumentDeleted{Reason: "done"}) }, "", "done", 601},
		"purged":                {func(st *story) { st.add(recipe, &events.DocumentDeleted{Reason: events.ReasonPurged}) }, "", events.ReasonPurged, 601},
		"a deletion without effect": {func(st *story) {
			st.add(recipe, &events.DocumentDeleted{Reason: events.ReasonRenamed, To: "document/doc/b"})
			st.add(recipe, &events.DocumentDeleted{Reason: "again"})
		}, "", events.ReasonRenamed, 602},
		"expired": {func(st *story) { st.write(recipe, "short", events.DocMeta{ExpiresAt: "2026-01-01T00:00:00Z"}.String()) }, "", "", 601},
	} {
		t.Run(name, func(t *testing.T) {
			st := &story{t: t, records: slices.Clone(base)}
			c.add(st)
			l := &projector.Loader{Source: &tail{Records: st.records}, Snapshots: new(snapshot.Mem)}
			for range 2 { // first folded, then with stored chunks
				d, err := l.Document(t.Context(), recipe, 0)
				if d == nil || d.Head != c.head || d.Last().Reason != c.reason || string(d.Data) != c.want || errors.Is(err, projector.ErrNotFound) != (c.want == "") {
					t.Fatalf("got %+v, %v", d, err)
				}
			}
		})
	}
	lost := &tail{Records: base[:599], lost: 600}
	d, err := (&projector.Loader{Source: damaged{base, []events.Offset{600}}}).Document(t.Context(), recipe, 0)
	if hole, is := errors.AsType[*projector.HoleError](err); !is || hole.Damaged[0] != 600 || string(d.Data) != content(598) || !slices.Equal(d.Damaged, []events.Offset{600}) {
		t.Errorf("damaged last record: got damaged %v, %v, want the revision before with a hole at @600", d.Damaged, err)
	}
	if _, err := (&projector.Loader{Source: lost}).Document(t.Context(), recipe, 0); projector.Tolerate(err) != nil || lost.read < 599 {
		t.Errorf("lost last record: read %d records, %v, want all", lost.read, err)
	}
}

// Random documents agree with a map of their revisions, with any stored chunks: at every position, with every number,
// also after a purge.
func TestDocumentsAgreeWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := testkit.Documents().Draw(t, "log")
		stored := rapid.Bool().Draw(t, "snapshots")
		store := new(snapshot.Mem)
		for n := 1; n <= len(records); n++ {
			l := &projector.Loader{Source: &tail{Records: records[:n]}}
			if stored {
				l.Snapshots = store
				l.SetChunks(rapid.IntRange(1, 3).Draw(t, "records in a chunk"), 2)
			}
			mustAgree(t, l, testkit.ModelOf(records[:n]), records[:n])
		}
	})
}

func mustAgree(t *rapid.T, l *projector.Loader, model testkit.DocumentModel, records testkit.Records) {
	t.Helper()
	now := records[len(records)-1]
	for sub, want := range model {
		d, err := l.Document(t.Context(), sub, 0)
		if sub.Kind == events.KindBlob {
			continue // its content is determined by its id, or missing
		}
		if want.Readable(now.Recorded) != (err == nil) || err != nil && !errors.Is(err, projector.ErrNotFound) || d.Head != want.Last {
			t.Fatalf("%s: got head %v, %v, want %+v", sub, d.Head, err, want)
		}
		if err == nil && !bytes.Equal(d.Data, want.Newest().Data) {
			t.Fatalf("%s is %q, want %q", sub, d.Data, want.Newest().Data)
		}
		h, err := l.History(t.Context(), sub)
		if err != nil || len(h.Rejected) != want.Rejected || h.Head != want.Last {
			t.Fatalf("%s: got head %v, %d rejected, %v, want %+v", sub, h.Head, len(h.Rejected), err, want)
		}
		var have []events.Offset
		for i, rev := range h.Revisions {
			have = append(have, rev.Offset)
			if rev.Number != i+1 {
				t.Fatalf("%s: revision %d has number %d", sub, i+1, rev.Number)
			}
		}
		var offsets []events.Offset
		for _, rev := range want.Revisions {
			offsets = append(offsets, rev.Offset)
		}
		if diff := cmp.Diff(offsets, have); diff != "" {
			t.Fatalf("revisions of %s (-want +got):\n%s", sub, diff)
		}
		mustAgreeAt(t, l, sub, want, events.Offset(rapid.IntRange(1, int(now.Offset)).Draw(t, "at")), records)
	}
}

// mustAgreeAt compares a document with the model as of an offset.
func mustAgreeAt(t *rapid.T, l *projector.Loader, sub events.Subject, want *testkit.ModelDocument, at events.Offset, records testkit.Records) {
	t.Helper()
	d, err := l.Document(t.Context(), sub, at)
	var there *events.Record
	for i, rev := range want.Revisions {
		if rev.Offset <= at {
			there = &want.Revisions[i]
		}
	}
	if there != nil && there.Type == events.TypeDocumentWritten {
		meta, _ := events.ParseDocMeta(there.Extensions[events.ExtDoc])
		if until, ok := meta.ExpiresAt.Time(); ok && !records[at-1].Recorded.Before(until) {
			there = nil
		}
	}
	if there == nil || there.Type == events.TypeDocumentDeleted {
		if !errors.Is(err, projector.ErrNotFound) || d.Data != nil {
			t.Fatalf("%s at %v: got %q, %v, want ErrNotFound", sub, at, d.Data, err)
		}
		return
	}
	if err != nil || !bytes.Equal(d.Data, there.Data) || d.Last().Offset != there.Offset {
		t.Fatalf("%s at %v: got %+v, %v, want %q", sub, at, d, err, there.Data)
	}
	n := 0
	for rev, err := range l.Revisions(t.Context(), sub, at) {
		if err != nil || rev.Offset > at || n == 0 && rev.Offset != there.Offset {
			t.Fatalf("%s at %v: Revisions yielded %v, %v", sub, at, rev.Offset, err)
		}
		n++
	}
	if n != d.Last().Number {
		t.Fatalf("%s at %v: got %d revisions, but the newest has number %d", sub, at, n, d.Last().Number)
	}
}

// If a record of an unknown subject is lost, a document without records may have been that one.
func TestDocumentOfWhichNothingIsLeft(t *testing.T) {
	t.Run("net D1 a lost record may be of any document", func(t *testing.T) {
		onShelf(t, func(t *testing.T, l *log.Log, mem *memlog.Backend) {
			mustPut(t, l, s1, "a", "b")
			loader := &projector.Loader{Source: l}
			if _, err := loader.Document(t.Context(), recipe, 0); !errors.Is(err, projector.ErrNotFound) {
				t.Errorf("nothing is lost: got %v, want not found", err)
			}
			mem.Damage(1)
			l.Lose([]log.Hole{{Offset: 1}})
			d, err := loader.Document(t.Context(), recipe, 0)
			if hole, is := errors.AsType[*projector.HoleError](err); !is || d == nil || !slices.Equal(d.Damaged, []events.Offset{1}) {
				t.Errorf("got %+v, %v (%v), want the loss of 1", d, err, hole)
			}
		})
	})
}

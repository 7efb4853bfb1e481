package projector_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

var recipe = events.Document("", "recipe", "r1")

func (st *story) write(doc events.Subject, content string, ext ...string) events.Offset {
	e := events.Event{Source: "urn:test", Type: events.TypeDocumentWritten, Subject: doc, ContentType: "text/plain", Data: []byte(content)}
	if len(ext) > 0 {
		e = e.WithExtension(events.ExtDoc, ext[0])
	}
	return st.event(e)
}

func TestDocument(t *testing.T) {
	st := &story{t: t}
	st.write(recipe, "one", events.DocMeta{Owner: "me"}.String())                      // @1
	st.add(s1, aTurn("x"))                                                             // @2
	st.write(recipe, "")                                                               // @3
	st.write(recipe, "void", "{")                                                      // @4
	st.add(recipe, &events.DocumentDeleted{Reason: "done"})                            // @5
	st.add(recipe, &events.DocumentDeleted{Reason: "again"})                           // @6, rejected
	st.event(events.Event{Source: "urn:test", Type: "com.example.x", Subject: recipe}) // @7
	st.write(recipe, "two")                                                            // @8
	l := &projector.Loader{Source: st.records}
	for at, want := range map[events.Offset]string{1: "one", 2: "one", 3: "", 4: "", 8: "two", 0: "two", 99: "two"} {
		d, err := l.Document(t.Context(), recipe, at)
		if err != nil || string(d.Data) != want || d.Data == nil || !d.Exists() {
			t.Errorf("at %v: got %q, %v, want %q", at, d.Data, err, want)
		}
	}
	for _, at := range []events.Offset{5, 6, 7} {
		if _, err := l.Document(t.Context(), recipe, at); !errors.Is(err, projector.ErrNotFound) {
			t.Errorf("at %v: got %v, want ErrNotFound", at, err)
		}
	}
	if _, err := l.Document(t.Context(), events.Document("", "recipe", "r2"), 0); !errors.Is(err, projector.ErrNotFound) {
		t.Errorf("never written: got %v, want ErrNotFound", err)
	}
	d, err := l.History(t.Context(), recipe)
	if err != nil {
		t.Fatal(err)
	}
	want := []projector.Revision{
		{Number: 1, Offset: 1, ID: "event-1", ContentType: "text/plain", Size: 3, Meta: events.DocMeta{Owner: "me"}},
		{Number: 2, Offset: 3, ID: "event-3", ContentType: "text/plain"},
		{Number: 3, Offset: 5, ID: "event-5", Deleted: true, Reason: "done"},
		{Number: 4, Offset: 8, ID: "event-8", ContentType: "text/plain", Size: 3},
	}
	if diff := cmp.Diff(want, d.Revisions, cmpopts.IgnoreFields(projector.Revision{}, "Time")); diff != "" {
		t.Errorf("revisions (-want +got):\n%s", diff)
	}
	if d.Last().Time != "2026-01-01T00:00:08.000Z" {
		t.Errorf("got time %s, want that of the log", d.Last().Time)
	}
	if len(d.Rejected) != 2 || d.Rejected[0].Offset != 4 || d.Rejected[1].Offset != 6 {
		t.Errorf("rejected: got %v, want @4 and @6", d.Rejected)
	}
}

// Purged content is unreadable at every position, regardless of later writes and deletions. Content written after the
// purge is readable.
func TestDocumentPurged(t *testing.T) {
	st := &story{t: t}
	l := func() *projector.Loader { return &projector.Loader{Source: st.records} }
	must := func(readable ...events.Offset) {
		t.Helper()
		for at := events.Offset(0); at <= events.Offset(len(st.records)); at++ {
			_, err := l().Document(t.Context(), recipe, at)
			if slices.Contains(readable, at) != (err == nil) || err != nil && !errors.Is(err, projector.ErrNotFound) {
				t.Errorf("of %d records, at %v: got %v, want readable %v", len(st.records), at, err, readable)
			}
		}
	}
	st.write(recipe, "one")
	must(0, 1)
	st.add(recipe, &events.DocumentDeleted{Reason: "done"})
	must(1)
	st.add(recipe, &events.DocumentDeleted{Reason: events.ReasonPurged})
	must()
	st.write(recipe, "two")
	must(0, 4)
	st.add(recipe, &events.DocumentDeleted{Reason: "done"})
	must(4)
	st.add(recipe, &events.DocumentDeleted{Reason: events.ReasonPurged})
	must()
}

func TestDocumentDamaged(t *testing.T) {
	st := &story{t: t}
	for _, text := range []string{"one", "two", "three"} {
		st.write(recipe, text)
	}
	l := &projector.Loader{Source: damaged{st.records, []events.Offset{2, 3}}}
	d, err := l.Document(t.Context(), recipe, 2)
	if hole, is := errors.AsType[*projector.HoleError](err); !is || hole.Damaged[0] != 2 || string(d.Data) != "one" || !slices.Equal(d.Damaged, []events.Offset{2}) {
		t.Errorf("got %q, damaged %v, %v, want one with a hole at @2", d.Data, d.Damaged, err)
	}
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// Parts of a blob, as i/n:text. Another writer is named in front.
func TestBlob(t *testing.T) {
	const content = "onetwothree"
	for name, c := range map[string]struct {
		parts  []string
		limit  int64
		reason string // "": it can be read
	}{
		"whole":                    {parts: []string{"0/1:onetwothree"}},
		"in parts":                 {parts: []string{"0/3:one", "1/3:two", "2/3:three"}},
		"out of order":             {parts: []string{"2/3:three", "0/3:one", "1/3:two"}},
		"parts twice":              {parts: []string{"0/3:one", "1/3:two", "0/3:one", "1/3:two", "2/3:three", "2/3:three"}},
		"missing part":             {parts: []string{"0/3:one", "2/3:three"}, reason: "it is not complete"},
		"nothing":                  {reason: "it is not complete"},
		"wrong hash":               {parts: []string{"0/1:onetwofour"}, reason: "its content has another hash"},
		"wrong part":               {parts: []string{"0/3:one", "1/3:tvo", "2/3:three"}, reason: "its content has another hash"},
		"wrong, then right":        {parts: []string{"0/3:x", "0/3:one", "1/3:two", "2/3:three"}},
		"right, then wrong":        {parts: []string{"0/3:one", "1/3:two", "2/3:three", "0/3:x"}},
		"another's wrong part":     {parts: []string{"0/3:one", "other 0/3:x", "1/3:two", "2/3:three"}},
		"another's whole is wrong": {parts: []string{"other 0/1:x", "0/3:one", "1/3:two", "2/3:three"}},
		"two half writers":         {parts: []string{"0/2:onetwo", "0/3:one", "1/3:two", "1/2:three"}},
		"no part at all":           {parts: []string{"bad", "0/1:onetwothree"}},
		"too large":                {parts: []string{"0/1:onetwothree"}, limit: 10, reason: "it has more than 10 bytes"},
		"as large as allowed":      {parts: []string{"0/1:onetwothree"}, limit: 11},
		"another's is too large":   {parts: []string{"other 0/1:a great deal of text", "0/1:onetwothree"}, limit: 11},
		"deleted":                  {parts: []string{"0/1:onetwothree", "delete done"}},
		"purged":                   {parts: []string{"0/1:onetwothree", "delete purged"}, reason: "it is purged"},
		"purged in the middle":     {parts: []string{"0/2:one", "delete purged", "1/2:twothree"}, reason: "it is purged"},
		"purged, written again":    {parts: []string{"0/1:onetwothree", "delete purged", "0/1:onetwothree"}},
		"damage beside it":         {parts: []string{"0/3:one", "damage", "1/3:two", "2/3:three"}},
		"damage":                   {parts: []string{"0/3:one", "damage", "2/3:three"}, reason: "damaged record @2"},
	} {
		t.Run(name, func(t *testing.T) {
			st, src := &story{t: t}, damaged{}
			sum := sumOf(content)
			doc := events.Document("", events.KindBlob, sum)
			for _, text := range c.parts {
				writer, part, ok := strings.Cut(text, " ")
				if !ok || writer != "other" && writer != "delete" {
					writer, part = "urn:tally:blob", text
				}
				switch {
				case writer == "delete":
					st.add(doc, &events.DocumentDeleted{Reason: part})
				case part == "bad":
					st.write(doc, "x", "{")
				case part == "damage":
					src.at = append(src.at, st.write(doc, "x"))
				default:
					p := events.Part{SHA256: sum}
					position, data, _ := strings.Cut(part, ":")
					if _, err := fmt.Sscanf(position, "%d/%d", &p.Index, &p.Count); err != nil {
						t.Fatal(err)
					}
					st.write(doc, data, events.DocMeta{Part: &p}.String())
					st.records[len(st.records)-1].Source = writer
				}
			}
			src.Records = st.records
			limit := c.limit
			if limit == 0 {
				limit = 1000
			}
			got, err := projector.Blob(t.Context(), src, "default", sum, limit)
			if c.reason == "" {
				if err != nil || string(got) != content {
					t.Errorf("got %q, %v, want %q", got, err, content)
				}
				return
			}
			if blob, ok := errors.AsType[*projector.BlobError](err); !ok || blob.Reason != c.reason || blob.Subject != doc {
				t.Errorf("got %q, %v, want reason %s", got, err, c.reason)
			}
		})
	}
}

// A turn stored by reference is returned as it was written. If its bytes are missing, only its own record is damaged.
func TestReferences(t *testing.T) {
	payload, err := events.Encode(aTurn("a large turn"))
	if err != nil {
		t.Fatal(err)
	}
	st := &story{t: t}
	doc := events.Document("", events.KindBlob, sumOf(string(payload)))
	st.write(doc, string(payload))
	st.add(s1, created())
	ref := func(sum string) {
		st.event(events.Event{Source: "urn:test", Type: events.TypeTurnAppended, Subject: s1}.WithExtension(events.ExtDataRef, events.BlobRef(sum)))
	}
	ref(sumOf(string(payload)))
	ref(sumOf("missing"))
	st.event(events.Event{Source: "urn:test", Type: "com.example.x", Subject: s1}.WithExtension(events.ExtDataRef, "https://example.com/x")) // not tally's
	st.add(s1, aTurn("last"))
	l := &projector.Loader{Source: st.records}
	s := mustSession(t, l, s1, 0)
	if turns := s.Threads.Turns("main"); len(turns) != 2 || string(turns[0].Raw) != `"a large turn"` || string(turns[1].Raw) != `"last"` {
		t.Errorf("got turns %v, want a large turn and the last", turns)
	}
	if !slices.Equal(s.Damaged, []events.Offset{4}) || len(s.Ledger.Rejected) > 0 || s.Ledger.Unknown[0].Count != 1 {
		t.Errorf("damaged %v, rejected %v, unknown %v, want @4 damaged and 1 unknown", s.Damaged, s.Ledger.Rejected, s.Ledger.Unknown)
	}
	st.add(s1, &events.SessionRewound{To: 2})
	l.Source = st.records
	gone, err := l.Gone(t.Context(), mustSession(t, l, s1, 0))
	if err != nil || len(gone) != 2 || !bytes.Equal(gone[0].Raw, []byte(`"a large turn"`)) {
		t.Errorf("gone turns: got %v, %v, want 2", gone, err)
	}
}

// interrupted is a source that stops answering for one subject.
type interrupted struct {
	projector.Source
	sub events.Subject
	err error
}

func (i interrupted) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	if r.Subject != i.sub {
		return i.Source.Read(ctx, r)
	}
	return func(yield func(events.Record, error) bool) { yield(events.Record{}, i.err) }
}

// A blob that cannot be read at the moment is not damage: the load fails.
func TestReferenceUnavailable(t *testing.T) {
	st := &story{t: t}
	sum := sumOf("x")
	st.event(events.Event{Source: "urn:test", Type: events.TypeTurnAppended, Subject: s1}.WithExtension(events.ExtDataRef, events.BlobRef(sum)))
	away := errors.New("away")
	l := &projector.Loader{Source: interrupted{st.records, events.Document("", events.KindBlob, sum), away}}
	if _, err := l.Session(t.Context(), s1, 0); !errors.Is(err, away) {
		t.Errorf("load: got %v, want the error of the read", err)
	}
	if _, err := l.Verify(t.Context(), nil); !errors.Is(err, away) {
		t.Errorf("verify: got %v, want the error of the read", err)
	}
}

package projector_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// A fold depends on the records alone, not on the places or the number of its snapshots. The snapshot at an offset is
// the same after any cuts before it.
func TestBorders(t *testing.T) {
	t.Run("B-21 random cuts", func(t *testing.T) { rapid.Check(t, cutAtRandom) })
	t.Run("B-21 forks and rewinds at every record", func(t *testing.T) { rapid.Check(t, forkEverywhere) })
	t.Run("net P1 forks in the middle of chunks, and records with several effects", func(t *testing.T) { rapid.Check(t, forkInChunks) })
}

// cutAtRandom takes snapshots at random offsets, then one that is compared with a fold from the first record.
func cutAtRandom(t *rapid.T) {
	b := drawBorders(t, testkit.History().Draw(t, "log"))
	for range rapid.IntRange(1, 8).Draw(t, "cuts") {
		b.cut(t, drawRecord(t, b.log))
	}
	b.holds(t, drawRecord(t, b.log))
}

// forkEverywhere forks a session at each of its records, rewinds it and a fork across chunk borders, and takes
// snapshots between these steps.
func forkEverywhere(t *rapid.T) {
	b := drawBorders(t, nil)
	for n := range rapid.IntRange(2, 12).Draw(t, "records") {
		b.add(t, "parent", b.drawn(t, n))
	}
	parent := slices.Clone(b.log)
	for i, rec := range parent {
		id := fmt.Sprintf("fork-%d", i)
		b.add(t, id, &events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: "parent", Offset: rec.Offset}})
		b.add(t, id, b.drawn(t, 100+i))
	}
	for range rapid.IntRange(1, 6).Draw(t, "rewinds") {
		rec := drawRecord(t, b.log)
		to := rapid.SampledFrom(append(parent.Of(rec.Subject), b.log.Of(rec.Subject)...)).Draw(t, "to")
		b.add(t, rec.Subject.ID, &events.SessionRewound{To: to.Offset})
		b.add(t, rec.Subject.ID, b.drawn(t, 200))
	}
	for _, id := range sessionIDs(b.log) {
		own := b.log.Of(events.Session("", id))
		b.holds(t, own[len(own)-1])
	}
}

// borders is a log with its snapshots. Its chunks are bounded both in records and in bytes.
type borders struct {
	log          testkit.Records
	store        snapshot.Mem
	records, fan int
	size         int64
}

func drawBorders(t *rapid.T, log testkit.Records) *borders {
	return &borders{log: log, records: rapid.IntRange(1, 6).Draw(t, "records of a chunk"), fan: rapid.IntRange(2, 3).Draw(t, "chunks of an index"),
		size: rapid.Int64Range(1, 600).Draw(t, "bytes of a chunk")}
}

// drawn returns a turn of very different size, or a change of the threads.
func (b *borders) drawn(t *rapid.T, n int) events.Payload {
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0:
		return &events.ThreadReplaced{Threads: map[string]events.Replacement{"main": {Items: []events.Item{{Turn: events.Raw(fmt.Sprint(n))}}}}, Others: "keep", Reason: "save"}
	case 1:
		return &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(fmt.Sprint(n))}, {Thread: "other", Turn: events.Raw(fmt.Sprint(-n))}}}
	}
	text := bytes.Repeat([]byte("x"), rapid.SampledFrom([]int{1, 10, 100, 400}).Draw(t, "size"))
	return &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(fmt.Sprintf("%q", text))}}}
}

// add appends an event, and sometimes takes a snapshot of a session.
func (b *borders) add(t *rapid.T, id string, p events.Payload) {
	e, err := events.New("urn:test", events.Session("", id), p)
	if err != nil {
		t.Fatal(err)
	}
	at := events.Offset(len(b.log) + 1)
	e.ID = fmt.Sprintf("event-%d", at)
	b.log = append(b.log, events.Record{Event: e, Offset: at})
	if rapid.IntRange(0, 2).Draw(t, "cut") == 0 {
		b.cut(t, drawRecord(t, b.log))
	}
}

func (b *borders) loader(store snapshot.Store) *projector.Loader {
	return (&projector.Loader{Source: b.log, Snapshots: store}).SetChunks(b.records, b.fan).SetChunkBytes(b.size)
}

func (b *borders) cut(t *rapid.T, rec events.Record) {
	if _, err := b.loader(&b.store).Keep(t.Context(), rec.Subject, rec.Offset, ""); err != nil {
		t.Fatal(err)
	}
}

// holds takes a snapshot at a record and compares it, and all its parts, with a fold from the first record.
func (b *borders) holds(t *rapid.T, rec events.Record) {
	b.cut(t, rec)
	fresh := new(snapshot.Mem)
	if _, err := b.loader(fresh).Keep(t.Context(), rec.Subject, rec.Offset, ""); err != nil {
		t.Fatal(err)
	}
	for m := range fresh.All(t.Context()) {
		want, err := fresh.Get(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if have, err := b.store.Get(t.Context(), m); err != nil || !bytes.Equal(have.Data, want.Data) {
			t.Fatalf("%s of %s at %v: %v\n%s\nfrom the first record:\n%s", m.Fold, m.Subject, m.Offset, err, have.Data, want.Data)
		}
	}
	if v, err := b.loader(&b.store).Verify(t.Context(), nil); err != nil || len(v.Findings) > 0 {
		t.Fatalf("verify: got findings %v, %v, want none", v.Findings, err)
	}
}

// forkInChunks forks a parent at every record of its chunks, in its middle too, where each record has effects on
// several threads. Rewinds go across the borders of chunks. At each record of each session, a load that begins with
// snapshots, and one that was encoded and decoded, equal a fold from nothing.
func forkInChunks(t *rapid.T) {
	b := drawBorders(t, nil)
	b.records, b.size = rapid.IntRange(2, 4).Draw(t, "records of a chunk"), 1<<20
	names := []string{"main", "other", "third"}
	several := func() events.Payload {
		n := len(b.log)
		turn := func(name string) events.Entry { return events.Entry{Thread: name, Turn: events.Raw(fmt.Sprint(n))} }
		switch rapid.IntRange(0, 4).Draw(t, "what") {
		case 0: // a thread is cut, and another is emptied
			return &events.ThreadReplaced{Threads: map[string]events.Replacement{"main": {Items: []events.Item{{Keep: &[2]int{0, 1}}, {Turn: events.Raw(fmt.Sprint(n))}}}, "third": {Items: []events.Item{}}}, Others: "keep", Reason: "save"}
		case 1:
			return &events.ThreadTruncated{Lengths: map[string]int{"main": 1, "other": 1}, Reason: "cut"}
		}
		return &events.TurnAppended{Entries: []events.Entry{turn("main"), turn(rapid.SampledFrom(names).Draw(t, "thread")), turn("other"), turn("main")}}
	}
	for range rapid.IntRange(b.records+1, 3*b.records+1).Draw(t, "records") {
		b.add(t, "parent", several())
	}
	parent := slices.Clone(b.log)
	for i, rec := range parent {
		id := fmt.Sprintf("fork-%d", i)
		b.add(t, id, &events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: "parent", Offset: rec.Offset}})
		for range rapid.IntRange(0, b.records).Draw(t, "own records") {
			b.add(t, id, several())
		}
	}
	for range rapid.IntRange(1, 4).Draw(t, "rewinds") {
		sub := drawSession(t, b.log)
		to := rapid.SampledFrom(append(parent, b.log.Of(sub)...)).Draw(t, "to")
		b.add(t, sub.ID, &events.SessionRewound{To: to.Offset})
		b.add(t, sub.ID, several())
	}
	for range 12 {
		rec := drawRecord(t, b.log)
		b.cut(t, rec)
		at := rapid.SampledFrom(b.log.Of(rec.Subject)).Draw(t, "at")
		mustEqualLoads(t, b.log, b.loader(&b.store), at)
		want := modelOf(b.log, at.Subject.ID, at.Offset)
		got := mustLoad(t, b.loader(&b.store), at.Subject, at.Offset)
		if diff := cmp.Diff(want.threads(want.head()), modelView(got.Threads), cmp.AllowUnexported(modelTurn{})); diff != "" {
			t.Fatalf("%s at %v (-want +got):\n%s", at.Subject, at.Offset, diff)
		}
	}
	for _, id := range sessionIDs(b.log) {
		own := b.log.Of(events.Session("", id))
		b.holds(t, own[len(own)-1])
	}
}

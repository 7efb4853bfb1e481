package embedded_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// smallSegments returns options of a store whose segments hold about a hundred turns.
func smallSegments(dir string) embedded.ServerOptions {
	return embedded.ServerOptions{Dir: dir, SegmentBytes: 32 << 10}
}

// segments lists the streams of a store.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "TALLY_*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// mustSettle waits until each full segment has its index.
func mustSettle(t *testing.T, dir string) {
	t.Helper()
	eventually(t, func() error {
		want := len(segments(t, dir)) - 1
		have, err := filepath.Glob(filepath.Join(dir, "segments", "TALLY_*.index"))
		if err != nil || len(have) != want {
			return fmt.Errorf("%d of %d full segments have an index (%v)", len(have), want, err)
		}
		return nil
	})
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(testkit.Patience(time.Minute))
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// fillSegments appends turns of ten sessions over several segments, and returns their ids in order.
func fillSegments(t *testing.T, l *log.Log, from, n int) (ids []string) {
	t.Helper()
	for i := from; i < from+n; i++ {
		id := fmt.Sprint("turn-", i)
		mustAppend(t, l, events.Session("", fmt.Sprint("s", i%10)), turn(id, fmt.Sprintf("%0200d", i)))
		ids = append(ids, id)
	}
	return ids
}

// A log of many segments is one log: offsets continue, reads cross segments, ids are known, expectations hold, also
// after it is opened again.
func TestSegmentsAreOneLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var want []string
	for round := range 3 {
		s := mustStart(t, smallSegments(dir))
		l := s.Log()
		want = append(want, fillSegments(t, l, len(want), 300)...)
		if got := mustRead(t, l, events.Range{}); !slices.Equal(got, want) {
			t.Fatalf("round %d: %d records, want %d", round, len(got), len(want))
		}
		if head, err := l.Head(t.Context()); err != nil || int(head) != len(want) {
			t.Fatalf("round %d: head %v, %v, want %d", round, head, err, len(want))
		}
		mustSettle(t, dir)
		for i := range 10 {
			checkOldSession(t, l, i, want)
		}
		mustClose(t, s)
	}
	if n := len(segments(t, dir)); n < 5 {
		t.Errorf("got %d segments: the test showed nothing", n)
	}
}

// checkOldSession checks a session that has records in all segments.
func checkOldSession(t *testing.T, l *log.Log, i int, all []string) {
	t.Helper()
	sub := events.Session("", fmt.Sprint("s", i))
	var want []string
	for n := i; n < len(all); n += 10 {
		want = append(want, all[n])
	}
	if got := mustRead(t, l, events.Range{Subject: sub}); !slices.Equal(got, want) {
		t.Fatalf("session %d: got %v, want %v", i, got, want)
	}
	again := mustAppend(t, l, sub, turn(want[0], fmt.Sprintf("%0200d", i)))
	if !again.Duplicate || int(again.Last) != i+1 {
		t.Fatalf("session %d: its first event again: got %+v, want a duplicate", i, again)
	}
	last := events.Offset(len(all) - 10 + i + 1)
	if rec, err := l.Last(t.Context(), sub); err != nil || rec.Offset != last {
		t.Fatalf("session %d: got last %v, %v, want %v", i, rec.Offset, err, last)
	}
}

// An expectation about a subject whose records are in an old segment is checked.
func TestExpectationsReachOldSegments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := mustStart(t, smallSegments(dir)).Log()
	old, other := events.Session("", "old"), events.Session("", "never")
	first := mustAppend(t, l, old, turn("first", "x"))
	fillSegments(t, l, 0, 300)
	mustSettle(t, dir)
	for _, expect := range []log.Expect{log.At(0), log.At(first.Last + 1)} {
		_, err := l.Append(t.Context(), old, expect, turn("", "x"))
		if conflict, ok := errors.AsType[*log.ConflictError](err); !ok || conflict.Have != first.Last {
			t.Errorf("%v: got %v", expect, err)
		}
	}
	if ack, err := l.Append(t.Context(), old, log.At(first.Last), turn("second", "x")); err != nil || ack.Last != 302 {
		t.Errorf("at its last offset: got %+v, %v", ack, err)
	}
	if _, err := l.Append(t.Context(), other, log.At(0), turn("", "x")); err != nil {
		t.Errorf("a new subject: %v", err)
	}
}

// The index of a segment is the same, whether it was collected while the segment was written or read from it.
func TestIndexIsThatOfWhatIsStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := mustStart(t, smallSegments(dir))
	fillSegments(t, s.Log(), 0, 400)
	var batch []events.Event
	for i := range 20 {
		batch = append(batch, turn(fmt.Sprint("batch-", i), "x"))
	}
	mustAppend(t, s.Log(), events.Session("", "batch"), batch...)
	mustAppend(t, s.Log(), events.Session("", "batch"), batch...) // the index has a duplicate once
	fillSegments(t, s.Log(), 400, 300)
	mustSettle(t, dir)
	mustClose(t, s)
	remembered := indexes(t, dir)
	if len(remembered) < 5 {
		t.Fatalf("got %d indexes: the test shows nothing", len(remembered))
	}
	if err := os.RemoveAll(filepath.Join(dir, "segments")); err != nil {
		t.Fatal(err)
	}
	s = mustStart(t, smallSegments(dir))
	mustSettle(t, dir)
	mustClose(t, s)
	read := indexes(t, dir)
	for name, want := range remembered {
		if !bytes.Equal(read[name], want) {
			t.Errorf("%s: the index that was read differs", name)
		}
	}
}

// indexes returns the index files of a store.
func indexes(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	found := make(map[string][]byte)
	paths, err := filepath.Glob(filepath.Join(dir, "segments", "*.index"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if found[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// A segment ends when it has many subjects, as it does when it has many bytes.
func TestSubjectsFillASegment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := mustStart(t, embedded.ServerOptions{Dir: dir, SegmentBytes: 256 << 10, SegmentSubjects: 50}).Log()
	for i := range 600 {
		mustAppend(t, l, events.Session("", fmt.Sprint(i)), turn("", "x"))
	}
	eventually(t, func() error {
		if n := len(segments(t, dir)); n < 3 {
			return fmt.Errorf("got %d segments", n)
		}
		return nil
	})
	if got := mustRead(t, l, events.Range{}); len(got) != 600 {
		t.Errorf("got %d records", len(got))
	}
}

// The next owner completes a segment change that was interrupted at any step.
func TestInterruptedSegmentChange(t *testing.T) {
	testkit.NotUnderRace(t) // TestSegmentsAreOneLog changes segments there
	t.Parallel()
	for name, spoil := range map[string]func(*testing.T, jetstream.JetStream, string){
		"closed, and no next one": func(t *testing.T, js jetstream.JetStream, _ string) {
			closeStream(t, js, lastStream(t, js))
		},
		"the next one, and not sealed": func(t *testing.T, js jetstream.JetStream, _ string) {
			last := lastStream(t, js)
			next := last
			next.Name = fmt.Sprint("TALLY_", streamNumber(t, last.Name)+1)
			next.FirstSeq = closeStream(t, js, last) + 1
			if _, err := js.CreateStream(t.Context(), next); err != nil {
				t.Fatal(err)
			}
		},
		"no index": func(t *testing.T, _ jetstream.JetStream, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "segments")); err != nil {
				t.Fatal(err)
			}
		},
		"a damaged index": func(t *testing.T, _ jetstream.JetStream, dir string) {
			path := filepath.Join(dir, "segments", "TALLY_1.index")
			if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustStart(t, smallSegments(dir))
			want := fillSegments(t, s.Log(), 0, 300)
			mustSettle(t, dir)
			mustClose(t, s)
			withServer(t, dir, func(js jetstream.JetStream) { spoil(t, js, dir) })

			s = mustStart(t, smallSegments(dir))
			want = append(want, fillSegments(t, s.Log(), 300, 20)...)
			if got := mustRead(t, s.Log(), events.Range{}); !slices.Equal(got, want) {
				t.Fatalf("got %d records, want %d", len(got), len(want))
			}
			mustSettle(t, dir)
			for i := range 10 {
				checkOldSession(t, s.Log(), i, want)
			}
			mustClose(t, s)
			withServer(t, dir, func(js jetstream.JetStream) { checkSealed(t, js) })
		})
	}
}

// withServer runs a server on a store that nobody owns.
func withServer(t *testing.T, dir string, do func(jetstream.JetStream)) {
	t.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	do(js)
}

func streamNumber(t *testing.T, name string) (n int) {
	t.Helper()
	if _, err := fmt.Sscanf(name, "TALLY_%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func streams(t *testing.T, js jetstream.JetStream) (list []jetstream.StreamConfig) {
	t.Helper()
	names := js.ListStreams(t.Context())
	for info := range names.Info() {
		list = append(list, info.Config)
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b jetstream.StreamConfig) int {
		return streamNumber(t, a.Name) - streamNumber(t, b.Name)
	})
	return list
}

func lastStream(t *testing.T, js jetstream.JetStream) jetstream.StreamConfig {
	t.Helper()
	list := streams(t, js)
	return list[len(list)-1]
}

// closeStream removes a stream's subjects, as the first step of a segment change does, and returns its last sequence.
func closeStream(t *testing.T, js jetstream.JetStream, c jetstream.StreamConfig) uint64 {
	t.Helper()
	c.Subjects = []string{"tally.closed." + c.Name}
	s, err := js.UpdateStream(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}

func checkSealed(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	list := streams(t, js)
	for i, c := range list {
		if active := i == len(list)-1; c.Sealed == active {
			t.Errorf("%s of %d: sealed %v", c.Name, len(list), c.Sealed)
		}
	}
}

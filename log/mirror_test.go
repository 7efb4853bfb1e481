package log_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// An original is what a Read of another log yields, for tests: a record at each offset from 1 on, nil where it yields
// nothing, and without a type where a filler is wanted. A lost record has only its offset.
type original []*events.Record

var longAgo = time.Date(2020, 1, 2, 3, 4, 5, 678901234, time.UTC)

// randomOriginal makes an original with gaps, losses and repeated identities.
func randomOriginal(r *rand.Rand, n int) original {
	list := make(original, n)
	for i := range list {
		at := events.Offset(i + 1)
		e := note(fmt.Sprint("e", i), strings.Repeat("x", r.IntN(300)))
		e.Subject = events.Session("", fmt.Sprint("s", r.IntN(5)))
		if r.IntN(5) == 0 {
			e.Subject = events.Document("other", "doc", "a.b c/é")
		}
		if r.IntN(4) == 0 {
			e.ContentType = "" // by a producer in another language
		}
		if r.IntN(3) == 0 {
			e = e.WithExtension(events.ExtBasis, events.Offset(r.IntN(i+1)).Padded())
		}
		list[i] = &events.Record{Event: e, Offset: at, Recorded: longAgo.Add(time.Duration(i) * time.Second)}
		switch r.IntN(12) {
		case 0:
			list[i] = nil
		case 1:
			list[i] = &events.Record{Offset: at}
		case 2:
			list[i] = &events.Record{Offset: at, Recorded: longAgo.Add(time.Duration(i) * time.Second)}
		case 3: // the same event twice, by a producer that sets no id for the server
			if i > 0 && list[i-1] != nil && list[i-1].Type != "" {
				list[i].Event = list[i-1].Event
			}
		}
	}
	if list[n-1] == nil { // a read yields its last offset
		list[n-1] = &events.Record{Offset: events.Offset(n)}
	}
	return list
}

// errKilled is the end of a copy in the middle.
var errKilled = errors.New("killed")

// from returns the function for Mirror: it reads the first records, up to an offset, and fails behind it.
func (list original) from(upto events.Offset, each func(events.Offset)) func(context.Context, events.Offset) iter.Seq2[events.Record, error] {
	return func(_ context.Context, after events.Offset) iter.Seq2[events.Record, error] {
		return func(yield func(events.Record, error) bool) {
			for i := int(after); i < len(list); i++ {
				at := events.Offset(i + 1)
				if at > upto {
					yield(events.Record{}, errKilled)
					return
				}
				if each != nil {
					each(at)
				}
				switch rec := list[i]; {
				case rec == nil:
				case rec.Type == "" && rec.Recorded.IsZero():
					if !yield(events.Record{}, fmt.Errorf("read: %w", &events.DamageError{Offset: at})) {
						return
					}
				case !yield(*rec, nil):
					return
				}
			}
		}
	}
}

// want returns the event and the time of the record at an offset of a copy.
func (list original) want(at events.Offset) (events.Event, time.Time) {
	rec := list[at-1]
	if rec != nil && rec.Type != "" {
		return rec.Event, rec.Recorded
	}
	recorded := time.Time{}
	for i := int(at) - 1; i >= 0 && recorded.IsZero(); i-- {
		if list[i] != nil {
			recorded = list[i].Recorded
		}
	}
	return log.Filler(at), recorded
}

// check compares the log with the first records of the original.
func (list original) check(t *testing.T, l *log.Log, upto events.Offset) {
	t.Helper()
	n := events.Offset(0)
	for rec, err := range l.Read(t.Context(), events.Range{Buffered: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; rec.Offset != n {
			t.Fatalf("the copy has %v, want %v", rec.Offset, n)
		}
		want, recorded := list.want(n)
		if !rec.Event.Equal(want) {
			t.Fatalf("%v: the copy has\n%+v, want\n%+v", n, rec.Event, want)
		}
		if !recorded.IsZero() && !rec.Recorded.Equal(recorded) {
			t.Fatalf("%v: recorded at %v, want %v", n, rec.Recorded, recorded)
		}
	}
	if n != upto {
		t.Fatalf("the copy ends at %v, want %v", n, upto)
	}
}

// mirrorTargets are the two ways in which a log can be on a server.
func mirrorTargets(t *testing.T, run func(t *testing.T, open func() *log.Log, js nats.JetStreamContext)) {
	for name, owner := range map[string]bool{"owner": true, "others": false} {
		t.Run(name, func(t *testing.T) {
			s := mustServe(t, filepath.Join(t.TempDir(), "js"), nil)
			js, err := mustDial(t, s).JetStream()
			if err != nil {
				t.Fatal(err)
			}
			run(t, func() *log.Log {
				c := log.Config{AckWait: time.Minute}
				if owner {
					c.Host = log.Host{Owner: true, Copy: true, Appends: mustLogin(t, s), Settled: events.MaxOffset, Segments: log.Segments{Bytes: 20_000, Dir: t.TempDir()},
						Sync: func(string) error { return nil }}
				}
				return mustOpen(t, mustDial(t, s), c)
			}, js)
		})
	}
}

func mustLogin(t *testing.T, s *server.Server) log.Login {
	t.Helper()
	login, err := scansOf(s, sameConn)()
	if err != nil {
		t.Fatal(err)
	}
	return login
}

func sameConn(c net.Conn) net.Conn { return c }

// A copy has each record at its own offset, with the event and the time of the original, wherever it was interrupted.
// For records that are not there it has fillers.
func TestMirror(t *testing.T) {
	mirrorTargets(t, func(t *testing.T, open func() *log.Log, _ nats.JetStreamContext) {
		r := rand.New(rand.NewPCG(7, 8))
		list := randomOriginal(r, testkit.Times(1600))
		reached := events.Offset(0)
		for reached < events.Offset(len(list)) {
			l := open()
			upto := reached + events.Offset(r.IntN(400))
			_, err := l.Mirror(t.Context(), list.from(upto, nil))
			if upto < events.Offset(len(list)) && !errors.Is(err, errKilled) || upto >= events.Offset(len(list)) && err != nil {
				t.Fatalf("copy up to %v: %v", upto, err)
			}
			if reached, err = l.Head(t.Context()); err != nil {
				t.Fatal(err)
			}
			list.check(t, l, reached)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Messages of an interrupted copy may arrive while the next one is at work. It takes them for its own.
func TestMirrorMeetsLateMessages(t *testing.T) {
	mirrorTargets(t, func(t *testing.T, open func() *log.Log, js nats.JetStreamContext) {
		list := randomOriginal(rand.New(rand.NewPCG(1, 1)), 40)
		late := func(at events.Offset) {
			if at%3 != 1 || at > 1 && list[at-2] == nil { // a filler is sent with the record behind it
				return
			}
			for tries := 0; ; tries++ { // until the copy has sent the records before it
				info, err := js.StreamInfo(log.FirstStream)
				if err != nil || tries > 10_000 {
					t.Errorf("the copy did not send %v: %v", at-1, err)
					return
				}
				if info.State.LastSeq == uint64(at-1) {
					break
				}
			}
			e, recorded := list.want(at)
			h, data := events.EncodeBinary(e)
			m := &nats.Msg{Subject: e.Subject.NATS(), Header: h, Data: data}
			if e.ContentType == "" {
				m.Header.Del("Content-Type")
			}
			m.Header.Set("Tally-Recorded", recorded.Format(time.RFC3339Nano))
			if _, err := js.PublishMsg(m, nats.ExpectLastSequence(uint64(at-1))); err != nil {
				t.Error(err)
			}
		}
		l := open()
		if _, err := l.Mirror(t.Context(), list.from(100, late)); err != nil {
			t.Fatal(err)
		}
		list.check(t, l, events.Offset(len(list)))
	})
}

// A copy ends if another writer appends to the log. It reports the event that it met.
func TestMirrorMeetsAnotherWriter(t *testing.T) {
	mirrorTargets(t, func(t *testing.T, open func() *log.Log, js nats.JetStreamContext) {
		list := randomOriginal(rand.New(rand.NewPCG(1, 1)), 40)
		l := open()
		if _, err := l.Mirror(t.Context(), list.from(20, nil)); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		once := false
		_, err := l.Mirror(t.Context(), list.from(100, func(events.Offset) {
			if once {
				return
			}
			once = true
			e := note("of another", "x")
			e.Subject = events.Session("", "s1")
			h, data := events.EncodeBinary(e)
			if _, err := js.PublishMsg(&nats.Msg{Subject: e.Subject.NATS(), Header: h, Data: data}); err != nil {
				t.Error(err)
			}
		}))
		other, is := errors.AsType[*log.OtherLogError](err)
		if !is || other.Have != "of another" || !errors.Is(err, log.ErrConflict) {
			t.Fatalf("got %v", err)
		}
		// Records that were sent without waiting for answers may follow, each at its own offset.
		for rec, err := range l.Read(t.Context(), events.Range{After: other.Offset, Buffered: true}) {
			if want, _ := list.want(rec.Offset); err != nil || !rec.Event.Equal(want) {
				t.Errorf("%v has event %q, want %q: %v", rec.Offset, rec.ID, want.ID, err)
			}
		}
	})
}

// The time of a copy's original counts if it can be true. The client and the server's files read it alike.
func TestRecordedOfACopy(t *testing.T) {
	s := mustServe(t, filepath.Join(t.TempDir(), "js"), nil)
	js, err := mustDial(t, s).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	mustOpen(t, mustDial(t, s), log.Config{}) // makes the stream
	began := time.Now().Add(-time.Minute)
	original := longAgo.Format(time.RFC3339Nano)
	values := []struct {
		values []string
		counts bool
	}{
		{[]string{original}, true}, {[]string{"2020-01-02T04:04:05.678901234+01:00"}, true}, {nil, false},
		{[]string{time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano)}, false}, {[]string{"yesterday"}, false},
		{[]string{original, original}, false}, {[]string{""}, false},
	}
	for i, v := range values {
		e := note(fmt.Sprint(i), "x")
		e.Subject = events.Session("", "s")
		h, data := events.EncodeBinary(e)
		if v.values != nil {
			h["Tally-Recorded"] = v.values
		}
		if _, err := js.PublishMsg(&nats.Msg{Subject: e.Subject.NATS(), Header: h, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	for name, host := range map[string]log.Host{"client": {}, "own connection": {Scans: scansOf(s, sameConn)}} {
		l := mustOpen(t, mustDial(t, s), log.Config{Host: host})
		for rec, err := range l.Read(t.Context(), events.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			v := values[rec.Offset-1]
			if counts := rec.Recorded.Equal(longAgo); counts != v.counts || !counts && (rec.Recorded.Before(began) || rec.Recorded.After(began.Add(time.Hour/2))) {
				t.Errorf("%s: %q: recorded at %v", name, v.values, rec.Recorded)
			}
		}
	}
}

// A log on a server that is marked takes no appends, whenever its clients opened it, until a copy is complete. A log that
// was moved takes none at all.
func TestMarkedLogs(t *testing.T) {
	s := mustServe(t, filepath.Join(t.TempDir(), "js"), nil)
	sub := events.Session("", "s")
	l := mustOpen(t, mustDial(t, s), log.Config{})
	mustAppend(t, l, sub, note("", "x"))
	if err := l.MarkCopying(t.Context(), "a folder"); err != nil {
		t.Fatal(err)
	}
	other := mustOpen(t, mustDial(t, s), log.Config{})
	for _, l := range []*log.Log{l, other} {
		_, err := l.Append(t.Context(), sub, log.Any, note("", "x"))
		if copying, is := errors.AsType[*log.CopyingError](err); !is || copying.From != "a folder" || !errors.Is(err, log.ErrUnavailable) {
			t.Errorf("append to an unfinished copy: %v", err)
		}
	}
	if err := l.MarkCopying(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, sub, note("", "x"))
	mustAppend(t, other, sub, note("", "x"))
	if err := l.MarkMoved(t.Context(), "nats://new"); err != nil {
		t.Fatal(err)
	}
	// other was opened before, and asks the server.
	if ack, err := other.Append(t.Context(), sub, log.Any, note("", "x")); !errors.Is(err, log.ErrUnavailable) {
		t.Errorf("append to a log that was moved, by a client from before: %v %v", ack, err)
	}
	again := mustOpen(t, mustDial(t, s), log.Config{})
	_, err := again.Append(t.Context(), sub, log.Any, note("", "x"))
	if moved, is := errors.AsType[*log.MovedError](err); !is || moved.To != "nats://new" {
		t.Errorf("append to a log that was moved: %v", err)
	}
	if head, err := again.Head(t.Context()); head != 3 || err != nil {
		t.Errorf("the log ends at %v, want @3: %v", head, err)
	}
}

package log_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// forgetful is a Backend that reports the record before the last one as the head, like a server that is behind the
// others.
type forgetful struct {
	shared
	behind atomic.Int64 // number of such reports left
}

func (f *forgetful) State(ctx context.Context) (log.State, error) {
	st, err := f.shared.State(ctx)
	if f.behind.Add(-1) >= 0 {
		st.Last--
	}
	return st, err
}

// An append that was stored without an answer is recognised when it is repeated, even if the server that answers does
// not have its record yet.
func TestRepeatedAppendIsNotRefused(t *testing.T) {
	for name, first := range map[string]events.Event{"looked up by id": note("x", "x"), "looked up behind the expectation": note("", "x")} {
		t.Run(name, func(t *testing.T) {
			mem := shared{memlog.New(memlog.Config{})}
			unanswered := &logtest.Faulty{Backend: mem, Next: logtest.Sometimes(1, 1, logtest.AckLost)}
			one := logtest.OpenOn(t, unanswered, log.Config{})
			a := events.Session("", "a")
			first = one.Stamp(first)
			if _, err := one.Append(t.Context(), a, log.At(0), first); !errors.Is(err, log.ErrUnknown) {
				t.Fatalf("append without an answer: got %v, want ErrUnknown", err)
			}
			f := &forgetful{shared: mem}
			two := logtest.OpenOn(t, f, log.Config{})
			f.behind.Store(1)
			if ack, err := two.Append(t.Context(), a, log.At(0), first); err == nil && !ack.Duplicate || err != nil && !errors.Is(err, log.ErrUnavailable) {
				t.Errorf("repeated while the server is behind: got %+v, %v, want a duplicate or ErrUnavailable", ack, err)
			}
			f.behind.Store(0)
			if ack, err := two.Append(t.Context(), a, log.At(0), first); err != nil || !ack.Duplicate || ack.Last != 1 {
				t.Errorf("repeated once the server has the record: got %+v, %v, want a duplicate at 1", ack, err)
			}
			if got := show(t, two, events.Range{}); len(got) != 1 {
				t.Errorf("the log has records %v, want 1", got)
			}
		})
	}
}

// If the server that answers lacks a record that another one acknowledged, reads and appends wait until it has the
// record.
func TestServerThatIsBehind(t *testing.T) {
	ahead, late := mustDial(t, mustServe(t, t.TempDir(), nil)), mustDial(t, mustServe(t, t.TempDir(), nil))
	for _, nc := range []*nats.Conn{ahead, late} {
		mustOpen(t, nc, log.Config{}) // makes the stream
	}
	l := mustOpen(t, ahead, log.Config{Host: log.Host{Reads: late}})
	l.Replicate()
	a := events.Session("", "a")
	e := note("x", "x")
	ack, err := l.Append(t.Context(), a, log.At(0), e)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if head, err := l.Head(ctx); err == nil {
		t.Errorf("got head %v from a server without records, want an error", head)
	}
	if rec, err := l.Record(ctx, ack.Last); err == nil || events.IsDamage(err) {
		t.Errorf("record %v: got %v, %v from a server that lacks it, want an error other than damage", ack.Last, rec, err)
	}

	arrived := make(chan error, 1)
	go func() {
		time.Sleep(100 * time.Millisecond)
		arrived <- catchUp(t.Context(), ahead, late)
	}()
	if rec, err := l.Last(t.Context(), a); err != nil || rec.Offset != ack.Last {
		t.Errorf("last record: got %v, %v, want %v", rec.Offset, err, ack.Last)
	}
	if again, err := l.Append(t.Context(), a, log.At(0), e); err != nil || !again.Duplicate || again.Last != ack.Last {
		t.Errorf("repeated append: got %+v, %v, want a duplicate at %v", again, err, ack.Last)
	}
	if got := show(t, l, events.Range{Subject: a}); len(got) != 1 {
		t.Errorf("the session has records %v, want 1", got)
	}
	if err := <-arrived; err != nil {
		t.Fatal(err)
	}
}

// Open waits while a cluster has no leader.
func TestClusterWithoutLeader(t *testing.T) {
	behind := mustDial(t, mustServe(t, t.TempDir(), nil))
	front := mustServe(t, t.TempDir(), func(o *server.Options) { o.JetStream = false })
	refused := 0
	_, err := mustDial(t, front).Subscribe("$JS.API.>", func(m *nats.Msg) {
		if refused < 3 {
			refused++
			m.Respond([]byte(`{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`))
			return
		}
		if answer, err := behind.Request(m.Subject, m.Data, time.Minute); err == nil {
			m.Respond(answer.Data)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := log.Open(t.Context(), mustDial(t, front), log.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil || refused != 3 {
		t.Errorf("close: %v, after %d refusals, want 3", err, refused)
	}
}

// catchUp copies the messages of one server to another, as they are.
func catchUp(ctx context.Context, from, to *nats.Conn) error {
	one, err := jetstream.New(from)
	if err != nil {
		return err
	}
	two, err := jetstream.New(to)
	if err != nil {
		return err
	}
	s, err := one.Stream(ctx, "TALLY_1")
	if err != nil {
		return err
	}
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if err != nil {
			return err
		}
		if _, err := two.PublishMsg(ctx, &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}); err != nil {
			return err
		}
	}
	return nil
}

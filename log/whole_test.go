package log

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
)

// storing is a server that is storing an atomic batch of three messages. Each call of State shows one more message.
type storing struct {
	Backend
	shown events.Offset
}

func (s *storing) State(context.Context) (State, error) {
	if s.shown < 7 {
		s.shown++
	}
	return State{First: 1, Last: s.shown}, nil
}

// Get returns messages of which 5, 6 and 7 are the batch.
func (s *storing) Get(_ context.Context, at events.Offset) (Message, error) {
	m := Message{Subject: events.Session("", "a").NATS(), Offset: at, Time: time.Now(), Header: map[string][]string{}}
	if at >= 5 {
		m.Header[headerBatchID], m.Header[headerBatchSequence] = []string{"b"}, []string{strconv.Itoa(int(at - 4))}
	}
	if at == 7 {
		m.Header[headerBatchCommit] = []string{"1"}
	}
	return m, nil
}

func (s *storing) Last(ctx context.Context, _ string) (Message, error) { return s.Get(ctx, 5) }

// On a server that others run, a read ends before an atomic batch that is being stored, and Last waits for the rest of
// the batch.
func TestAtomicIsReadWhole(t *testing.T) {
	s := &storing{shown: 3}
	l := &Log{backend: s, js: &jetStream{}, life: context.Background()}
	for _, want := range []events.Offset{4, 4, 4, 7, 7} {
		if r, err := l.stretchOf(t.Context(), events.Range{}); err != nil || r.upto != want {
			t.Errorf("a read ends at %v, %v, want %v", r.upto, err, want)
		}
	}
	s.shown = 4
	if _, err := l.Last(t.Context(), events.Session("", "a")); err == nil || s.shown != 7 {
		// The message is not an event. Last reports that when the atomic batch is complete.
		t.Errorf("Last returned when the server showed up to %v, with %v, want 7 and an error", s.shown, err)
	}
}

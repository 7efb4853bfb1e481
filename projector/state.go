package projector

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// SessionFold names the fold of sessions, as snapshots do. Its version changes
// whenever the fold or the form of its state does.
const (
	SessionFold        = "session"
	SessionFoldVersion = 1
)

// sessionState is the stored form of a Session.
type sessionState struct {
	Subject string       `json:"subject"` // NATS form
	History historyState `json:"history"`
	Threads Threads      `json:"threads"`
	Ledger  *Ledger      `json:"ledger"`
}

// historyState is the stored form of a History: lists of numbers as variable
// length integers, differences where they ascend.
type historyState struct {
	Offsets []byte        `json:"offsets,omitempty"`
	Sources []sourceState `json:"sources,omitempty"`
	Points  []byte        `json:"points,omitempty"`
	Names   []string      `json:"names"`
	Deltas  []byte        `json:"deltas,omitempty"`
	Late    []int         `json:"late,omitempty"`
	Rewinds []int         `json:"rewinds,omitempty"`
}

type sourceState struct {
	Subject string `json:"subject"`
	End     int    `json:"end"`
}

// Encode writes the session's state. Equal sessions give equal bytes, on every
// machine.
func (s *Session) Encode() ([]byte, error) {
	data, err := rawjson.Marshal(sessionState{s.Subject.NATS(), s.History.encode(), s.Threads, s.Ledger})
	if err != nil {
		return nil, fmt.Errorf("projector: encode %s: %v", s.Subject, err)
	}
	return data, nil
}

// DecodeSession reads what Encode wrote.
func DecodeSession(data []byte) (*Session, error) {
	st := sessionState{Ledger: newLedger()}
	if err := rawjson.Unmarshal(data, &st); err != nil {
		return nil, fmt.Errorf("projector: decode session: %v", err)
	}
	sub, err := events.ParseNATS(st.Subject)
	if err != nil {
		return nil, fmt.Errorf("projector: decode session: %v", err)
	}
	h, err := st.History.decode(sub)
	if err != nil {
		return nil, fmt.Errorf("projector: decode %s: %v", sub, err)
	}
	s := &Session{Subject: sub, History: h, Threads: st.Threads, Ledger: st.Ledger}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("projector: decode %s: %v", sub, err)
	}
	return s, nil
}

// check holds the parts of a state against each other, so that no later fold
// stumbles over one that no fold has made.
func (s *Session) check() error {
	h, l := s.History, s.Ledger
	if s.Threads == nil || l == nil || slices.Contains(l.Runs, nil) || slices.Contains(l.Checkpoints, nil) {
		return errors.New("a part is missing")
	}
	for thread, name := range h.names {
		n := absent
		if th, ok := s.Threads[name]; ok && th == nil {
			return errors.New("a part is missing")
		} else if ok {
			n = len(th.Turns)
		}
		if h.lengths.of(thread) != n {
			return fmt.Errorf("thread %q has %d turns, by its history %d", name, n, h.lengths.of(thread))
		}
	}
	for name := range s.Threads {
		if !slices.Contains(h.names, name) {
			return fmt.Errorf("thread %q has no history", name)
		}
	}
	if !slices.EqualFunc(h.rewinds, l.Rewinds, func(n int, r Rewind) bool { return h.offsets[n] == r.Offset }) {
		return errors.New("history and ledger have other rewinds")
	}
	return nil
}

func (h *History) encode() historyState {
	st := historyState{Names: slices.Clone(h.names), Late: h.late, Rewinds: h.rewinds}
	if st.Names == nil {
		st.Names = []string{}
	}
	prev := events.Offset(0)
	for _, at := range h.offsets {
		st.Offsets = binary.AppendUvarint(st.Offsets, uint64(at-prev))
		prev = at
	}
	for _, s := range h.sources {
		st.Sources = append(st.Sources, sourceState{s.subject.NATS(), s.end})
	}
	for _, p := range h.points[1:] {
		st.Points = appendInts(st.Points, p.number, p.last())
	}
	for _, d := range h.deltas {
		set := 0
		if d.set {
			set = 1
		}
		st.Deltas = appendInts(st.Deltas, d.record, d.thread, set, d.n)
	}
	return st
}

// decode rebuilds a history; chains are shared again as they were.
func (st historyState) decode(sub events.Subject) (*History, error) {
	h := NewHistory(sub)
	h.names = st.Names
	at := events.Offset(0)
	for b := st.Offsets; len(b) > 0; {
		d, n := binary.Uvarint(b)
		if n <= 0 || d == 0 || events.Offset(d) > events.MaxOffset-at {
			return nil, fmt.Errorf("offsets do not ascend")
		}
		at += events.Offset(d)
		h.offsets = append(h.offsets, at)
		b = b[n:]
	}
	if !numbers(st.Late, len(h.offsets)) || !numbers(st.Rewinds, len(h.offsets)) {
		return nil, fmt.Errorf("late records or rewinds do not ascend")
	}
	h.late, h.rewinds = st.Late, st.Rewinds
	for _, s := range st.Sources {
		sub, err := events.ParseNATS(s.Subject)
		if err != nil || s.End <= h.inherited() || s.End > len(h.offsets) {
			return nil, fmt.Errorf("inherited records do not add up")
		}
		h.sources = append(h.sources, source{sub, s.End})
	}
	for b := st.Points; len(b) > 0; {
		var p [2]int
		var err error
		if b, err = readInts(b, p[:]); err != nil {
			return nil, err
		}
		number, last := p[0], p[1]
		if number <= h.points[len(h.points)-1].number || number >= len(h.offsets) || last < -1 || last >= number {
			return nil, fmt.Errorf("points do not ascend")
		}
		h.points = append(h.points, point{number, h.chain(last), number + 1})
	}
	for b := st.Deltas; len(b) > 0; {
		var d [4]int
		var err error
		if b, err = readInts(b, d[:]); err != nil {
			return nil, err
		}
		if d[0] < 0 || d[0] >= len(h.offsets) || d[1] < 0 || d[1] >= len(h.names) || len(h.deltas) > 0 && d[0] < h.deltas[len(h.deltas)-1].record {
			return nil, fmt.Errorf("a delta of record %d, thread %d", d[0], d[1])
		}
		h.deltas = append(h.deltas, delta{d[0], d[1], d[2] == 1, d[3]})
	}
	h.remember()
	return h, nil
}

// numbers reports whether a list ascends and has only numbers of n records.
func numbers(list []int, n int) bool {
	for i, k := range list {
		if k < 0 || k >= n || i > 0 && k <= list[i-1] {
			return false
		}
	}
	return true
}

func appendInts(b []byte, list ...int) []byte {
	for _, n := range list {
		b = binary.AppendVarint(b, int64(n))
	}
	return b
}

func readInts(b []byte, into []int) ([]byte, error) {
	for i := range into {
		n, size := binary.Varint(b)
		if size <= 0 || int64(int(n)) != n {
			return nil, fmt.Errorf("numbers are cut off")
		}
		into[i], b = int(n), b[size:]
	}
	return b, nil
}

package projector

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
)

// Threads are the turns in effect: the fold of a live list.
type Threads map[string]*Thread

// Thread is a named list of turns.
type Thread struct {
	Turns []Turn     `json:"turns"`
	Meta  events.Raw `json:"meta,omitempty"`
}

// Turn is the smallest unit of a thread.
type Turn struct {
	Offset    events.Offset    `json:"offset"`          // of the event that brought it
	Index     int              `json:"index,omitempty"` // among the entries or items of that event for this thread
	Raw       events.Raw       `json:"turn,omitempty"`  // the producer's JSON, byte for byte
	Bytes     []byte           `json:"bytes,omitempty"` // in its place if it was no JSON
	ID        string           `json:"id,omitempty"`
	Timestamp events.Timestamp `json:"timestamp,omitempty"`
	Run       *events.RunRef   `json:"run,omitempty"`
	Meta      events.Raw       `json:"meta,omitempty"`
	Pinned    bool             `json:"pinned,omitempty"`
}

// Apply folds one live record onto the threads. What is no thread event changes
// nothing. It returns an error for a record that History would not have let pass.
func (t Threads) Apply(f Fact) error {
	switch p := f.Payload.(type) {
	case *events.TurnAppended:
		return t.appended(f.Offset, p)
	case *events.ThreadReplaced:
		return t.replaced(f.Offset, p)
	case *events.ThreadTruncated:
		return t.truncated(p)
	case *events.ThreadPinned:
		return t.pinned(p.Thread, p.Pins)
	}
	return nil
}

func (t Threads) thread(name string) *Thread {
	th := t[name]
	if th == nil {
		th = &Thread{Turns: []Turn{}}
		t[name] = th
	}
	return th
}

// enter puts the entries of an event behind the turns of their threads.
func (t Threads) enter(at events.Offset, entries []events.Entry) {
	index := make(map[string]int, 1)
	for i := range entries {
		e := &entries[i]
		th := t.thread(e.Thread)
		th.Turns = append(th.Turns, Turn{Offset: at, Index: index[e.Thread], Raw: e.Turn, Bytes: e.Bytes, ID: e.ID,
			Timestamp: e.Timestamp, Run: e.Run, Meta: e.Meta, Pinned: e.Pinned})
		index[e.Thread]++
	}
}

func (t Threads) appended(at events.Offset, p *events.TurnAppended) error {
	t.enter(at, p.Entries)
	for name, meta := range p.ThreadMeta {
		t.thread(name).Meta = meta
	}
	for name, pins := range p.Pins {
		if err := t.pinned(name, pins); err != nil {
			return err
		}
	}
	return nil
}

func (t Threads) replaced(at events.Offset, p *events.ThreadReplaced) error {
	after := make(Threads, len(p.Threads))
	for name, r := range p.Threads {
		th := &Thread{Turns: []Turn{}, Meta: r.Meta}
		fresh := newItems(at, r)
		for _, it := range r.Items {
			if it.Keep == nil {
				th.Turns, fresh = append(th.Turns, fresh[0]), fresh[1:]
				continue
			}
			before := t[name]
			if it.Keep[0] == it.Keep[1] {
				continue
			}
			if before == nil || it.Keep[1] > len(before.Turns) {
				return fmt.Errorf("projector: record %v keeps turns of %q that are not there", at, name)
			}
			th.Turns = append(th.Turns, before.Turns[it.Keep[0]:it.Keep[1]]...)
		}
		after[name] = th
	}
	if p.Others == "drop" {
		clear(t)
	}
	maps.Copy(t, after)
	return nil
}

// newItems gives the turns that a replacement brings, in order.
func newItems(at events.Offset, r events.Replacement) []Turn {
	var turns []Turn
	for _, it := range r.Items {
		if it.Keep == nil {
			turns = append(turns, Turn{Offset: at, Index: len(turns), Raw: it.Turn, Bytes: it.Bytes, ID: it.ID,
				Timestamp: it.Timestamp, Run: it.Run, Meta: it.Meta, Pinned: it.Pinned})
		}
	}
	return turns
}

func (t Threads) truncated(p *events.ThreadTruncated) error {
	for name, n := range p.Lengths {
		th := t[name]
		switch {
		case name == events.AllThreads:
			clear(t)
		case n == 0:
			delete(t, name)
		case th == nil || n > len(th.Turns):
			return fmt.Errorf("projector: thread %q is shorter than %d", name, n)
		default:
			th.Turns = slices.Clip(th.Turns[:n])
		}
	}
	return nil
}

func (t Threads) pinned(name string, pins map[int]bool) error {
	th := t[name]
	for i, pinned := range pins {
		if th == nil || i >= len(th.Turns) {
			return fmt.Errorf("projector: thread %q has no turn %d", name, i)
		}
		th.Turns[i].Pinned = pinned
	}
	return nil
}

// Names lists the threads: main first, the others in byte order.
func (t Threads) Names() []string {
	return slices.SortedFunc(maps.Keys(t), func(a, b string) int {
		switch {
		case a == b:
			return 0
		case a == events.MainThread || b != events.MainThread && a < b:
			return -1
		}
		return 1
	})
}

// Turns gives the turns of a thread, nil if there is none.
func (t Threads) Turns(name string) []Turn {
	if th := t[name]; th != nil {
		return th.Turns
	}
	return nil
}

// Hash is the SHA-256, in hex, of the threads' names, turns, pins and metadata.
// Equal hashes mean equal threads; where the turns stand in the log is left out.
func (t Threads) Hash() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(t)) {
		writePart(h, 'n', []byte(name))
		t[name].hash(h)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Hash is the SHA-256, in hex, of one thread.
func (th *Thread) Hash() string {
	h := sha256.New()
	if th != nil {
		th.hash(h)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (th *Thread) hash(h hash.Hash) {
	writePart(h, 'm', th.Meta)
	for i := range th.Turns {
		turn := &th.Turns[i]
		pinned := []byte{0}
		if turn.Pinned {
			pinned[0] = 1
		}
		writePart(h, 't', turn.Raw)
		writePart(h, 'b', turn.Bytes)
		writePart(h, 'i', []byte(turn.ID))
		writePart(h, 's', []byte(turn.Timestamp))
		writePart(h, 'a', turn.Meta)
		writePart(h, 'p', pinned)
		if turn.Run != nil {
			writePart(h, 'r', []byte(turn.Run.String()))
		}
	}
}

// writePart writes a tag, a length and the bytes, so that no two sequences of
// parts look alike.
func writePart(h hash.Hash, tag byte, b []byte) {
	var head [9]byte
	head[0] = tag
	binary.BigEndian.PutUint64(head[1:], uint64(len(b)))
	h.Write(head[:])
	h.Write(b)
}

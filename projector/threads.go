package projector

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
)

// Threads are the turns in effect: the fold of a live list. All turns are in memory; Outline reads a part.
type Threads map[string]*Thread

// Thread is a named list of turns.
type Thread struct {
	Turns []Turn     `json:"turns"`
	Meta  events.Raw `json:"meta,omitempty"`
}

// Turn is the smallest unit of a thread.
type Turn struct {
	Offset    events.Offset    `json:"offset"`          // of the event that added it
	Index     int              `json:"index,omitempty"` // among the entries or items of that event for this thread
	Raw       events.Raw       `json:"turn,omitempty"`  // the producer's JSON, byte for byte
	Bytes     []byte           `json:"bytes,omitempty"` // instead of Raw, if it is not JSON
	ID        string           `json:"id,omitempty"`
	Timestamp events.Timestamp `json:"timestamp,omitempty"`
	Run       *events.RunRef   `json:"run,omitempty"`
	Meta      events.Raw       `json:"meta,omitempty"`
	Pinned    bool             `json:"pinned,omitempty"`
	Erased    string           `json:"erased,omitempty"` // id of the receipt of the erasure that removed the content; see events.Event.Erase
}

// clone returns a copy of the turn that shares no memory with it.
func (t Turn) clone() Turn {
	t.Raw, t.Bytes, t.Meta = slices.Clone(t.Raw), slices.Clone(t.Bytes), slices.Clone(t.Meta)
	if t.Run != nil {
		run := *t.Run
		t.Run = &run
	}
	return t
}

func (t Threads) thread(name string) *Thread {
	th := t[name]
	if th == nil {
		th = &Thread{Turns: []Turn{}}
		t[name] = th
	}
	return th
}

// erasedBy returns the receipt of the erasure that removed the content of a turn of the event, or "".
func erasedBy(e events.Event, turn events.Raw, id string) string {
	receipt := e.Erased()
	if receipt == "" || id != "" || string(turn) != "{}" && string(turn) != "0" {
		return ""
	}
	return receipt
}

// enter appends the entries of an event to their threads.
func enter(rec events.Record, entries []events.Entry, turns func(thread string) *[]Turn) {
	index := make(map[string]int, 1)
	for i := range entries {
		e := &entries[i]
		list := turns(e.Thread)
		*list = append(*list, Turn{Offset: rec.Offset, Index: index[e.Thread], Raw: e.Turn, Bytes: e.Bytes, ID: e.ID,
			Timestamp: e.Timestamp, Run: e.Run, Meta: e.Meta, Pinned: e.Pinned, Erased: erasedBy(rec.Event, e.Turn, e.ID)})
		index[e.Thread]++
	}
}

// newItems returns the new turns of a replacement, in order.
func newItems(rec events.Record, r events.Replacement) []Turn {
	var turns []Turn
	for _, it := range r.Items {
		if it.Keep == nil {
			turns = append(turns, Turn{Offset: rec.Offset, Index: len(turns), Raw: it.Turn, Bytes: it.Bytes, ID: it.ID,
				Timestamp: it.Timestamp, Run: it.Run, Meta: it.Meta, Pinned: it.Pinned, Erased: erasedBy(rec.Event, it.Turn, it.ID)})
		}
	}
	return turns
}

// Names lists the threads: main first, the others in byte order.
func (t Threads) Names() []string { return sortedNames(t) }

func sortedNames[V any](threads map[string]V) []string {
	return slices.SortedFunc(maps.Keys(threads), func(a, b string) int {
		switch {
		case a == b:
			return 0
		case a == events.MainThread || b != events.MainThread && a < b:
			return -1
		}
		return 1
	})
}

// Turns returns the turns of a thread, or nil.
func (t Threads) Turns(name string) []Turn {
	if th := t[name]; th != nil {
		return th.Turns
	}
	return nil
}

// Hash returns the SHA-256, in hex, of the threads' names, turns, pins and metadata. Equal hashes mean equal threads.
// The offsets of the turns do not count.
func (t Threads) Hash() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(t)) {
		writePart(h, 'n', []byte(name))
		t[name].hash(h)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Hash returns the SHA-256, in hex, of one thread.
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
		flag := []byte{0}
		if turn.Pinned {
			flag[0] = 1
		}
		writePart(h, 't', turn.Raw)
		writePart(h, 'b', turn.Bytes)
		writePart(h, 'i', []byte(turn.ID))
		writePart(h, 's', []byte(turn.Timestamp))
		writePart(h, 'a', turn.Meta)
		writePart(h, 'p', flag)
		if turn.Run != nil {
			writePart(h, 'r', []byte(turn.Run.String()))
		}
	}
}

// writePart writes a tag, a length and the bytes, so that different sequences of parts never produce equal bytes.
func writePart(h hash.Hash, tag byte, b []byte) {
	var head [9]byte
	head[0] = tag
	binary.BigEndian.PutUint64(head[1:], uint64(len(b)))
	h.Write(head[:])
	h.Write(b)
}

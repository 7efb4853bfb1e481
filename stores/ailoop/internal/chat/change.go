package chat

import (
	"hash/maphash"
	"slices"
	"sort"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Change turns one snapshot into another. At most one of Appended and Replaced is set. Pins changes the pins of kept
// messages, alone or together with Appended.
type Change struct {
	Appended []events.Item // after the existing ones
	Replaced bool
	Items    []events.Item // if Replaced: the new content
	Pins     map[int]bool  // by index
}

// Nothing reports whether messages and pins are unchanged.
func (c Change) Nothing() bool { return len(c.Appended) == 0 && !c.Replaced && len(c.Pins) == 0 }

// Between returns the change from one snapshot to another. It does not repeat kept messages.
func Between(from, to Snapshot) Change {
	n := 0
	for n < min(len(from.Messages), len(to.Messages)) && equalRaw(from.Messages[n], to.Messages[n]) {
		n++
	}
	if n < len(from.Messages) {
		return Replace(from, to)
	}
	var c Change
	for i := range n {
		if from.Pinned[i] != to.Pinned[i] {
			if c.Pins == nil {
				c.Pins = make(map[int]bool)
			}
			c.Pins[i] = to.Pinned[i]
		}
	}
	for i := n; i < len(to.Messages); i++ {
		c.Appended = append(c.Appended, itemOf(to, i))
	}
	return c
}

// Replace is Between in the form of a replacement, for any change.
func Replace(from, to Snapshot) Change { return Change{Replaced: true, Items: items(from, to)} }

// Payload returns the event that makes the change in a thread with the metadata meta; nil for no change.
func (c Change) Payload(thread string, meta events.Raw, reason string) events.Payload {
	switch {
	case c.Replaced:
		return &events.ThreadReplaced{Threads: map[string]events.Replacement{thread: {Items: c.Items, Meta: meta}}, Others: "keep", Reason: reason}
	case len(c.Appended) > 0:
		p := &events.TurnAppended{}
		for _, it := range c.Appended {
			p.Entries = append(p.Entries, events.Entry{Thread: thread, Turn: it.Turn, Pinned: it.Pinned})
		}
		if len(c.Pins) > 0 {
			p.Pins = map[string]map[int]bool{thread: c.Pins}
		}
		return p
	case len(c.Pins) > 0:
		return &events.ThreadPinned{Thread: thread, Pins: c.Pins}
	}
	return nil
}

func itemOf(s Snapshot, i int) events.Item {
	return events.Item{Turn: rawjson.AppendCompact(nil, s.Messages[i]), Pinned: s.Pinned[i]}
}

// items returns the new content as ranges of the old and new messages.
func items(from, to Snapshot) []events.Item {
	list := []events.Item{}
	old := match(from, to)
	for i := 0; i < len(old); i++ {
		if old[i] < 0 {
			list = append(list, itemOf(to, i))
			continue
		}
		first := i
		for i+1 < len(old) && old[i+1] == old[i]+1 {
			i++
		}
		list = append(list, events.Item{Keep: &[2]int{old[first], old[i] + 1}})
	}
	return list
}

// match returns for each message of to the index of its match in from, -1 for none. Matches are equal in content and
// pin, and their indexes ascend. match finds as many as possible.
func match(from, to Snapshot) []int {
	same := func(i, j int) bool {
		return from.Pinned[i] == to.Pinned[j] && equalRaw(from.Messages[i], to.Messages[j])
	}
	matched := slices.Repeat([]int{-1}, len(to.Messages))
	head, n, m := 0, len(from.Messages), len(to.Messages)
	for head < min(n, m) && same(head, head) {
		matched[head] = head
		head++
	}
	for n > head && m > head && same(n-1, m-1) {
		n, m = n-1, m-1
		matched[m] = n
	}
	middle(from, to, matched, [2]int{head, n}, [2]int{head, m}, same)
	return matched
}

// often is the maximal number of occurrences of a message that match searches. A more frequent message is short, and
// does not show which messages moved.
const often = 64

// middle matches the messages between an equal beginning and an equal end: it finds the longest ascending sequence of
// indexes by patience sorting.
func middle(from, to Snapshot, matched []int, old, fresh [2]int, same func(i, j int) bool) {
	seed := maphash.MakeSeed()
	positions := make(map[uint64][]int)
	for i := old[0]; i < old[1]; i++ {
		h := hashOf(seed, from.Messages[i])
		positions[h] = append(positions[h], i)
	}
	type card struct{ i, j, below int } // below is the card of the pile before
	var cards []card
	var tops []int // by pile: its top card
	for j := fresh[0]; j < fresh[1]; j++ {
		at := positions[hashOf(seed, to.Messages[j])]
		if len(at) > often {
			continue
		}
		for _, i := range slices.Backward(at) {
			if !same(i, j) {
				continue
			}
			pile := sort.Search(len(tops), func(p int) bool { return cards[tops[p]].i >= i })
			c := card{i, j, -1}
			if pile > 0 {
				c.below = tops[pile-1]
			}
			cards = append(cards, c)
			if pile == len(tops) {
				tops = append(tops, 0)
			}
			tops[pile] = len(cards) - 1
		}
	}
	if len(tops) == 0 {
		return
	}
	for c := tops[len(tops)-1]; c >= 0; c = cards[c].below {
		matched[cards[c].j] = cards[c].i
	}
}

// hashOf returns a hash of the tokens.
func hashOf(seed maphash.Seed, raw events.Raw) uint64 {
	return maphash.Bytes(seed, rawjson.AppendCompact(nil, raw))
}

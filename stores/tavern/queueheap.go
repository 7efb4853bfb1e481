package tavern

import (
	"container/heap"

	"github.com/tallylog/tally/projector"
)

// slot is an item that is ready, or will be at a time.
type slot struct {
	item  *projector.QueueItem
	due   int64     // Unix milliseconds, of one that is not ready yet
	in    *slotHeap // where it is
	index int       // there

	passed int // how often another one was chosen though this one was ready
}

// slotHeap has the least of its slots first.
type slotHeap struct {
	list []*slot
	less func(a, b *slot) bool
}

func (h *slotHeap) Len() int           { return len(h.list) }
func (h *slotHeap) Less(i, j int) bool { return h.less(h.list[i], h.list[j]) }

func (h *slotHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].index, h.list[j].index = i, j
}

func (h *slotHeap) Push(x any) {
	s := x.(*slot)
	s.in, s.index = h, len(h.list)
	h.list = append(h.list, s)
}

func (h *slotHeap) Pop() any {
	last := len(h.list) - 1
	s := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	s.in = nil
	return s
}

// first returns the least slot, nil if there is none.
func (h *slotHeap) first() *slot {
	if len(h.list) == 0 {
		return nil
	}
	return h.list[0]
}

// leave takes a slot from where it is.
func (s *slot) leave() {
	if s.in != nil {
		heap.Remove(s.in, s.index)
	}
}

package catalog

import (
	"hash/maphash"

	"github.com/tallylog/tally/events"
)

// filter is a set of subjects in little memory: 12 bits for each. It may report a subject that was not added, about one
// in a hundred. The zero value is empty.
type filter struct{ layers []bloom }

// bloom is a Bloom filter with a fixed number of bits.
type bloom struct {
	bits []uint64
	room int // number of subjects that may still be added
}

const (
	firstRoom     = 1 << 12 // subjects of the first layer; each layer has four times as many as the one before
	bitsEach      = 12
	probesEach    = 7
	bloomWordBits = 64
)

var filterSeed = maphash.MakeSeed()

// add adds a subject.
func (f *filter) add(sub events.Subject) {
	last := len(f.layers) - 1
	if last < 0 || f.layers[last].room == 0 {
		room := firstRoom << (2 * len(f.layers))
		f.layers = append(f.layers, bloom{make([]uint64, room*bitsEach/bloomWordBits), room})
		last++
	}
	b := &f.layers[last]
	b.room--
	b.probe(sub, func(word *uint64, bit uint64) bool {
		*word |= bit
		return true
	})
}

// has reports whether a subject may have been added. If it returns false, the subject was not added.
func (f *filter) has(sub events.Subject) bool {
	for i := range f.layers {
		if f.layers[i].probe(sub, func(word *uint64, bit uint64) bool { return *word&bit != 0 }) {
			return true
		}
	}
	return false
}

// probe calls do with the bits of a subject until it returns false, and returns its last result.
func (b *bloom) probe(sub events.Subject, do func(word *uint64, bit uint64) bool) bool {
	h := maphash.Comparable(filterSeed, sub)
	at, step := h>>32, h|1
	for range probesEach {
		n := at % uint64(len(b.bits)*bloomWordBits)
		if !do(&b.bits[n/bloomWordBits], 1<<(n%bloomWordBits)) {
			return false
		}
		at += step & 0xffffffff
	}
	return true
}

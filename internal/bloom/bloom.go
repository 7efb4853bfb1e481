// Package bloom is a set of hashes in little memory that grows as hashes are added.
package bloom

import "slices"

// Filter is a set of 64-bit hashes in about two bytes each. It takes about one absent hash in a thousand for one that
// was added, and never denies one that was added. The zero value is empty.
type Filter struct{ layers []layer }

// layer is a blocked Bloom filter of a fixed size.
type layer struct {
	blocks []block
	room   int // for further hashes
}

// block holds the bits of a hash: a look-up reads one line of the processor's cache.
type block [8]uint64

const (
	firstRoom = 1 << 10 // hashes of the first layer; each further layer has room for four times as many
	perBlock  = 32      // hashes of a block
	probes    = 7
	probeBits = 9 // of a position in a block
)

// Add adds a hash.
func (f *Filter) Add(hash uint64) {
	if f.Has(hash) {
		return
	}
	n := len(f.layers)
	if n == 0 || f.layers[n-1].room == 0 {
		room := firstRoom << (2 * n)
		f.layers = append(f.layers, layer{make([]block, room/perBlock), room})
		n++
	}
	last := &f.layers[n-1]
	last.room--
	mask := maskOf(hash)
	for i, word := range mask {
		last.of(hash)[i] |= word
	}
}

// Has reports whether a hash may have been added. False is certain.
func (f *Filter) Has(hash uint64) bool {
	mask := maskOf(hash)
	return slices.ContainsFunc(f.layers, func(l layer) bool {
		b := l.of(hash)
		for i, word := range mask {
			if b[i]&word != word {
				return false
			}
		}
		return true
	})
}

// of returns the block of a hash.
func (l layer) of(hash uint64) *block { return &l.blocks[(hash>>32)*uint64(len(l.blocks))>>32] }

// maskOf returns the bits of a hash in its block.
func maskOf(hash uint64) (mask block) {
	rest := hash * 0x9e3779b97f4a7c15 // the high bits of hash choose the block
	for range probes {
		bit := rest % (1 << probeBits)
		mask[bit/64] |= 1 << (bit % 64)
		rest >>= probeBits
	}
	return mask
}

package catalog

import (
	"hash/maphash"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/bloom"
)

// filter is a set of subjects in little memory. The zero value is empty.
type filter struct{ hashes bloom.Filter }

var filterSeed = maphash.MakeSeed()

// add adds a subject.
func (f *filter) add(sub events.Subject) { f.hashes.Add(maphash.Comparable(filterSeed, sub)) }

// has reports whether a subject may have been added. If it returns false, the subject was not added.
func (f *filter) has(sub events.Subject) bool {
	return f.hashes.Has(maphash.Comparable(filterSeed, sub))
}

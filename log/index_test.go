package log

import (
	"fmt"
	"testing"

	"github.com/tallylog/tally/events"
)

// The index keeps at most its maximum of ids. It drops the subjects that were not used for longest.
func TestIndexIsBounded(t *testing.T) {
	x := newIDIndex(110)
	for i := range 50 {
		ids := x.of(events.Session("", fmt.Sprint(i)))
		for j := range 20 {
			ids.offsets[uint64(j)] = 1
		}
		x.grew(ids)
	}
	if x.total > 110 || x.recent.Len() != len(x.subjects) || x.recent.Len() != 2 {
		t.Fatalf("the index has %d ids of %d subjects, want at most 110 of 2", x.total, x.recent.Len())
	}
	ids := x.of(events.Session("", "49"))
	if len(ids.offsets) != 20 {
		t.Fatalf("the last subject has %d ids, want 20", len(ids.offsets))
	}
	huge := x.of(events.Session("", "huge"))
	for j := range 1000 {
		huge.offsets[uint64(j)] = 1
	}
	x.grew(huge)
	if x.recent.Len() != 1 || len(x.of(events.Session("", "huge")).offsets) != 1000 {
		t.Fatal("want only the subject that is larger than the index")
	}
	x.grew(ids) // forgotten while its append was under way
	if x.recent.Len() != 1 || x.total != 1000+subjectCost {
		t.Fatalf("the index counts %d ids, those of a dropped subject too", x.total)
	}
}

// Identities with the same concatenation of source and id have different hashes.
func TestHashKeepsSourceAndIDApart(t *testing.T) {
	x := newIDIndex(10)
	if x.hash(events.Event{Source: "ab", ID: "c"}) == x.hash(events.Event{Source: "a", ID: "bc"}) {
		t.Fatal("the hash does not separate source and id")
	}
}

// The index keeps at most maxTypes types of a subject. If more came, knows is false for offsets before the dropped ones.
func TestTypesAreBounded(t *testing.T) {
	ids := &subjectIDs{offsets: make(map[uint64]events.Offset)}
	for i := range 10_000 {
		ids.note(uint64(i), fmt.Sprint(i), events.Offset(i+1))
		if len(ids.types) > maxTypes {
			t.Fatalf("%d types are kept, want at most maxTypes", len(ids.types))
		}
	}
	if ids.knows(1) || !ids.knows(10_000) {
		t.Errorf("knows(1) or not knows(10000); types are dropped up to %v", ids.forgot)
	}
}

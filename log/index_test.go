package log

import (
	"fmt"
	"testing"

	"github.com/tallylog/tally/events"
)

// TestIndexIsBounded fills the index with more ids than it may keep.
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
		t.Fatalf("%d ids of %d subjects are kept, at most 110 may be", x.total, x.recent.Len())
	}
	ids := x.of(events.Session("", "49"))
	if len(ids.offsets) != 20 {
		t.Fatalf("the last subject has %d ids", len(ids.offsets))
	}
	huge := x.of(events.Session("", "huge"))
	for j := range 1000 {
		huge.offsets[uint64(j)] = 1
	}
	x.grew(huge)
	if x.recent.Len() != 1 || len(x.of(events.Session("", "huge")).offsets) != 1000 {
		t.Fatal("a subject larger than the index is not kept alone")
	}
	x.grew(ids) // forgotten while its append was under way
	if x.recent.Len() != 1 || x.total != 1000+subjectCost {
		t.Fatalf("a forgotten subject counts: %d", x.total)
	}
}

// TestHashKeepsSourceAndIDApart holds the hash to its two parts.
func TestHashKeepsSourceAndIDApart(t *testing.T) {
	x := newIDIndex(10)
	if x.hash(events.Event{Source: "ab", ID: "c"}) == x.hash(events.Event{Source: "a", ID: "bc"}) {
		t.Fatal("source and id run together")
	}
}

// TestTypesAreBounded has a subject of so many types that they are forgotten.
func TestTypesAreBounded(t *testing.T) {
	ids := &subjectIDs{offsets: make(map[uint64]events.Offset)}
	for i := range 10_000 {
		ids.note(uint64(i), fmt.Sprint(i), events.Offset(i+1))
		if len(ids.types) > maxTypes {
			t.Fatalf("%d types are kept", len(ids.types))
		}
	}
	if ids.knows(1) || !ids.knows(10_000) {
		t.Errorf("forgotten up to %v", ids.forgot)
	}
}

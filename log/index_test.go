package log

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// The index keeps at most its maximum of ids. It drops the subjects that were not used for longest.
func TestIndexIsBounded(t *testing.T) {
	x := newIDIndex(2*(20*idCost+subjectCost) + 6)
	for i := range 50 {
		ids := x.of(events.Session("", fmt.Sprint(i)))
		for j := range 20 {
			ids.offsets.add(uint64(j), 1)
		}
		x.grew(ids)
	}
	if x.total > x.max || len(x.subjects) != 2 {
		t.Fatalf("the index has %d bytes of %d subjects, want at most %d of 2", x.total, len(x.subjects), x.max)
	}
	ids := x.of(events.Session("", "49"))
	if len(ids.offsets.many) != 20 {
		t.Fatalf("the last subject has %d ids, want 20", len(ids.offsets.many))
	}
	huge := x.of(events.Session("", "huge"))
	for j := range 1000 {
		huge.offsets.add(uint64(j), 1)
	}
	x.grew(huge)
	if len(x.subjects) != 1 || len(x.of(events.Session("", "huge")).offsets.many) != 1000 {
		t.Fatal("want only the subject that is larger than the index")
	}
	x.grew(ids) // forgotten while its append was under way
	if len(x.subjects) != 1 || x.total != 1000*idCost+subjectCost {
		t.Fatalf("the index counts %d bytes, those of a dropped subject too", x.total)
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
	ids := &subjectIDs{}
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

// An idSet holds what a map holds, however many ids it has.
func TestIDSetIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s idSet
		model := make(map[uint64]events.Offset)
		for range rapid.IntRange(0, 12).Draw(t, "adds") {
			hash, at := rapid.Uint64Range(0, 9).Draw(t, "hash"), events.Offset(rapid.Uint64Range(1, 99).Draw(t, "at"))
			s.add(hash, at)
			model[hash] = at
		}
		for hash := range uint64(10) {
			want, there := model[hash]
			if at, hit := s.find(hash); at != want || hit != there {
				t.Fatalf("id %d: got %v, %v, want %v, %v", hash, at, hit, want, there)
			}
		}
	})
}

// The index counts about the memory that its subjects take: with one id, and with some.
func TestIndexCountsItsMemory(t *testing.T) {
	testkit.NotUnderRace(t)
	heapOf(func() {})
	for _, n := range []int{1, 1, 4, 5, 20} {
		x := newIDIndex(1 << 30)
		used := heapOf(func() {
			for i := range 10_000 {
				ids := x.of(events.Session("", "session-"+strconv.Itoa(i)))
				for j := range n {
					ids.note(uint64(i*n+j), events.TypeTurnAppended, events.Offset(i*n+j+1))
				}
				x.grew(ids)
			}
		})
		t.Logf("%d ids of a subject: %d bytes a subject used, %d counted", n, used/10_000, x.total/10_000)
		if used > x.total*5/4 || used < x.total/2 {
			t.Errorf("%d ids of a subject: %d bytes used, %d counted", n, used, x.total)
		}
		runtime.KeepAlive(x)
	}
}

// heapOf returns how much the live heap grows while make runs.
func heapOf(make func()) int {
	live := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools keep for one collection
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := live()
	make()
	return live() - before
}

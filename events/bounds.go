package events

import "slices"

// Bounds of the references in a record. An event beyond them is refused when it is appended, and rejected when it is
// found in a log: Payload.Validate decides both. They keep the memory of a fold in proportion to the bytes of its
// records (docs/wire.md, Bounds of references).
const (
	MaxTurns      = 1 << 27 // of a thread
	MaxReferences = 1 << 18 // of one record: stretches of kept turns, pinned turns and pieces of lists
	MaxPointers   = 1 << 8  // lists of one record
	MaxListed     = 1 << 20 // turns named by the lists of one record, with repetitions
	MaxAgain      = 1 << 28 // bytes of data by reference that the records of one session may name again
	MaxAgainTimes = 15      // or this many times the bytes of the different data that they name, if that is more
	MaxFreeData   = 1 << 14 // bytes of data that may be named any number of times
)

// CheckAgain refuses a record of a session that names the blob sum again if that exceeds the bounds. With the record,
// again is the number of bytes of data that the session's records name again. distinct is the number of bytes of all
// named data, each blob counted once.
func CheckAgain(sum string, again, distinct int64) error {
	limit := max(MaxAgain, MaxAgainTimes*distinct)
	if again <= limit {
		return nil
	}
	return invalid(ExtDataRef, "with %.8s, records of the session name %d bytes of data again, at most %d are allowed", sum, again, limit)
}

func checkReferences(path string, n int) error {
	if n > MaxReferences {
		return wrong(path, "%d references to turns, at most %d are allowed in one event", n, MaxReferences)
	}
	return nil
}

func checkTurns(path string, n int) error {
	if n > MaxTurns {
		return wrong(path, "turn %d: a thread has at most %d turns", n, MaxTurns)
	}
	return nil
}

// checkKeeps refuses items that keep a turn twice. Without this rule each event could
// multiply the turns of the one before it.
func checkKeeps(path string, items []Item) error {
	var kept []int // indexes of the items that keep turns
	sorted := true
	for i := range items {
		k := items[i].Keep
		if k == nil || k[0] == k[1] {
			continue
		}
		if n := len(kept); n > 0 && items[kept[n-1]].Keep[1] > k[0] {
			sorted = false
		}
		kept = append(kept, i)
	}
	if sorted {
		return nil
	}
	slices.SortStableFunc(kept, func(a, b int) int { return items[a].Keep[0] - items[b].Keep[0] })
	for n := 1; n < len(kept); n++ {
		a, b := items[kept[n-1]].Keep, items[kept[n]].Keep
		if a[1] > b[0] {
			return wrong(path, "items %d and %d both keep turn %d: an event keeps a turn at most once", min(kept[n-1], kept[n]), max(kept[n-1], kept[n]), b[0])
		}
	}
	return nil
}

package projector

import (
	"context"

	"github.com/tallylog/tally/events"
)

// named counts the large data that a session's own records name by reference. Inherited records do not count. So a
// chunk, which holds own records only, can be rebuilt from the log.
type named struct {
	sizes    map[string]int64 // in bytes, by the blob's hash
	distinct int64            // sum of the sizes
	again    int64            // bytes of data that were named before, counted each time
}

// checkAgain is events.CheckAgain. Tests use smaller bounds.
var checkAgain = events.CheckAgain

// nameOf returns the hash of the blob that a record names as its data, or "".
func nameOf(rec events.Record) string {
	sum, _ := events.ParseBlobRef(rec.Extensions[events.ExtDataRef])
	return sum
}

// bounded counts the next record. If the session has named too many bytes repeatedly, it marks the fact invalid.
// Otherwise references of 300 bytes could stand for megabytes any number of times.
func (n *named) bounded(f Fact) Fact {
	sum, size := nameOf(f.Record), int64(len(f.Data))
	if sum == "" || size <= events.MaxFreeData {
		return f
	}
	if n.sizes[sum] == 0 {
		n.add(sum, size)
		return f
	}
	n.again += size
	if err := checkAgain(sum, n.again, n.distinct); err != nil && f.Invalid == nil {
		f.Payload, f.Invalid = nil, err
	}
	return f
}

// add counts data that are named for the first time.
func (n *named) add(sum string, size int64) {
	if n.sizes == nil {
		n.sizes = make(map[string]int64)
	}
	n.sizes[sum] = size
	n.distinct += size
}

// namedBefore counts the records of a session before an offset.
func (l *Loader) namedBefore(ctx context.Context, sub events.Subject, at events.Offset) (*named, error) {
	n := new(named)
	if at <= 1 {
		return n, nil
	}
	for rec, err := range events.Readable(l.read(ctx, events.Range{Subject: sub, Upto: at - 1})) {
		if err != nil {
			return nil, err
		}
		n.bounded(Fact{Record: rec})
	}
	return n, nil
}

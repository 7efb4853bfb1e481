package projector

import (
	"context"
	"fmt"

	"github.com/tallylog/tally/events"
)

// named counts the records of a session that name a blob as their data, by the blob's hash.
// Inherited records are not counted. The numbers stand in the session's own records alone, so
// a chunk can be made from the log again.
type named map[string]int

// nameOf returns the hash of the blob that a record names as its data, "" if it names none.
func nameOf(rec events.Record) string {
	sum, _ := events.ParseBlobRef(rec.Extensions[events.ExtDataRef])
	return sum
}

// bounded counts the next record. If too many have the same data, the fact that is returned
// has no effect: a reference of 300 bytes would else stand for megabytes any number of times.
func (n *named) bounded(f Fact) Fact {
	sum := nameOf(f.Record)
	if sum == "" {
		return f
	}
	if *n == nil {
		*n = make(named)
	}
	if (*n)[sum]++; (*n)[sum] > events.MaxSameData && len(f.Data) > events.MaxFreeData && f.Invalid == nil {
		f.Payload, f.Invalid = nil, fmt.Errorf("%d records of the session have the data %s by reference, at most %d are allowed", (*n)[sum], sum[:8], events.MaxSameData)
	}
	return f
}

// namedBefore counts over the records of a session before an offset. Their data are not read.
func (l *Loader) namedBefore(ctx context.Context, sub events.Subject, at events.Offset) (n named, err error) {
	n = make(named)
	if at <= 1 {
		return n, nil
	}
	for rec, err := range l.Source.Read(ctx, events.Range{Subject: sub, Upto: at - 1}) {
		if isDamage(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if sum := nameOf(rec); sum != "" {
			n[sum]++
		}
	}
	return n, nil
}

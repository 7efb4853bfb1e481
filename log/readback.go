package log

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/tallylog/tally/events"
)

// A backward read takes windows of offsets, wider where the filter finds little.
const (
	firstSpan  = 256
	fewItems   = 128
	manyItems  = 2048
	spanFactor = 4
)

// ReadBack yields what Read yields, newest first.
func (l *Log) ReadBack(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	mustBeRange(r)
	return func(yield func(events.Record, error) bool) {
		filter, upto, err := l.bounds(ctx, r)
		if err != nil {
			yield(events.Record{}, err)
			return
		}
		n := 0
		for it, err := range l.scanBack(ctx, filter, r.After, upto, r.Limit) {
			if err != nil {
				yield(events.Record{}, fmt.Errorf("log: read back: %w", err))
				return
			}
			if it.err == nil {
				n++
			}
			if !yield(it.rec, it.err) || n == r.Limit && n > 0 {
				return
			}
		}
	}
}

func (l *Log) scanBack(ctx context.Context, filter string, after, upto events.Offset, want int) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		span := events.Offset(firstSpan)
		if want > 0 {
			span = min(span, events.Offset(want))
		}
		for upto > after {
			from := after
			if upto-after > span {
				from = upto - span
			}
			window, full, err := l.window(ctx, filter, from, upto)
			if err != nil {
				yield(item{}, err)
				return
			}
			if full && span > 1 { // more than fits: the newest part of it first
				span = max(1, min(span, upto-from)/spanFactor)
				continue
			}
			for _, it := range slices.Backward(window) {
				if !yield(it, nil) {
					return
				}
			}
			upto = from
			switch {
			case len(window) < fewItems:
				span *= spanFactor
			case len(window) > manyItems:
				span = max(1, span/2)
			}
		}
	}
}

// window reads (after, upto] into memory, or reports that it would be too much.
func (l *Log) window(ctx context.Context, filter string, after, upto events.Offset) (window []item, full bool, err error) {
	size := 0
	for it, err := range l.scan(ctx, filter, after, upto, 0) {
		if err != nil {
			return nil, false, err
		}
		window = append(window, it)
		size += len(it.rec.Data)
		if upto-after > 1 && (len(window) > windowRecords || size > windowBytes) {
			return nil, true, nil
		}
	}
	return window, false, nil
}

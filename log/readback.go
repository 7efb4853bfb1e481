package log

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
)

// A backward read takes windows of offsets. They grow while the filter matches few records.
const (
	firstSpan  = 256
	fewItems   = 128
	manyItems  = 2048
	spanFactor = 4
)

// ReadBack yields what Read yields, newest first.
func (l *Log) ReadBack(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return l.readBy(ctx, r, "read back", l.scanBack)
}

// scanBack yields a stretch from its end.
func (l *Log) scanBack(ctx context.Context, s stretch) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		if !strings.Contains(s.filter, "*") {
			last, err := l.backend.Last(ctx, s.filter)
			switch {
			case err == nil: // the newest record, where a backward read of a quiet subject begins
				s.upto = min(s.upto, max(last.Offset, l.lastHole(s)))
			case !isNotFound(err): // not found: there is no record, or it is unreadable
				yield(item{}, err)
				return
			}
		}
		width := events.Offset(firstSpan)
		if s.want > 0 {
			width = min(width, events.Offset(s.want))
		}
		for s.upto > s.after {
			part := s
			part.want, part.seen = 0, 0
			if s.upto-s.after > width {
				part.after = s.upto - width
			}
			window, full, err := l.window(ctx, part)
			if err != nil {
				yield(item{}, err)
				return
			}
			if full && width > 1 { // too many records: the newest part of the window first
				width = max(1, min(width, s.upto-part.after)/spanFactor)
				continue
			}
			for _, it := range slices.Backward(window) {
				if !yield(it, nil) {
					return
				}
			}
			s.upto = part.after
			switch {
			case len(window) < fewItems:
				width *= spanFactor
			case len(window) > manyItems:
				width = max(1, width/2)
			}
		}
	}
}

// window reads a stretch into memory, or reports that it has too many records.
func (l *Log) window(ctx context.Context, s stretch) (window []item, full bool, err error) {
	size := 0
	for it, err := range l.scan(ctx, s) {
		if err != nil {
			return nil, false, err
		}
		window = append(window, it)
		size += len(it.rec.Data)
		if s.upto-s.after > 1 && (len(window) > windowRecords || size > windowBytes) {
			return nil, true, nil
		}
	}
	return window, false, nil
}

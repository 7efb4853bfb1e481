package log

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go/jetstream"
)

// Keys of the metadata of the first stream of a log on a server that others run. Every client that opens the log reads
// them.
const (
	metaCopying = "tally.copying" // the place of the original of which the log is an unfinished copy
	metaMoved   = "tally.moved"   // the place at which the log continues
)

// CopyingError reports that a store is an unfinished copy. It takes no appends until the copy is finished. It unwraps to
// ErrUnavailable.
type CopyingError struct {
	From string // the place of the original
}

func (e *CopyingError) Error() string {
	return fmt.Sprintf("the store is an unfinished copy of %s: tally copy finishes it", cmp.Or(e.From, "another store"))
}

// Unwrap returns ErrUnavailable.
func (e *CopyingError) Unwrap() error { return ErrUnavailable }

// MovedError reports that a store was moved. It takes no appends any more. It unwraps to ErrUnavailable.
type MovedError struct {
	To string // the place of the store now
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("the store was moved to %s, and takes no appends", cmp.Or(e.To, "another place"))
}

// Unwrap returns ErrUnavailable.
func (e *MovedError) Unwrap() error { return ErrUnavailable }

// refusal returns the reason why a log on a server that others run takes no appends, or nil. If the log had such a reason
// when it was opened, refusal asks again: the copy may be finished meanwhile.
func (l *Log) refusal(ctx context.Context) error {
	if !l.marked.Load() {
		return nil
	}
	info, err := l.js.line.Load().segments[0].info(ctx)
	if err != nil {
		return err
	}
	err = refusalOf(info.Config)
	l.marked.Store(err != nil)
	return err
}

func refusalOf(c jetstream.StreamConfig) error {
	if to := c.Metadata[metaMoved]; to != "" {
		return &MovedError{To: to}
	}
	if from := c.Metadata[metaCopying]; from != "" {
		return &CopyingError{From: from}
	}
	return nil
}

// MarkCopying marks a log on a server that others run as an unfinished copy of the store at a place, so that clients
// refuse to append. "" removes the mark.
func (l *Log) MarkCopying(ctx context.Context, from string) error {
	return l.remark(ctx, func(c *jetstream.StreamConfig) { setOrDelete(c.Metadata, metaCopying, from) })
}

// MarkMoved marks a log on a server that others run as moved to a place. From then on the server refuses every event,
// also from clients that opened the log before.
func (l *Log) MarkMoved(ctx context.Context, to string) error {
	return l.remark(ctx, func(c *jetstream.StreamConfig) {
		setOrDelete(c.Metadata, metaMoved, to)
		c.MaxMsgSize = 1 // every event is longer
	})
}

// IsMarked returns the error of appends if the log is marked, or nil.
func (l *Log) IsMarked(ctx context.Context) error { return l.refusal(ctx) }

func setOrDelete(m map[string]string, key, value string) {
	if value == "" {
		delete(m, key)
		return
	}
	m[key] = value
}

// remark changes the configuration of the log's first stream, which is its only one on a server that others run.
func (l *Log) remark(ctx context.Context, change func(*jetstream.StreamConfig)) error {
	if l.js == nil || l.js.owner || l.js.via {
		return fmt.Errorf("log: mark: %w: the log is not on a server that others run", ErrUnavailable)
	}
	segments := l.js.line.Load().segments
	if len(segments) > 1 {
		return fmt.Errorf("log: mark: %w: the log has %d streams, and one is supported on a server that others run", ErrUnavailable, len(segments))
	}
	info, err := segments[0].info(ctx)
	if err != nil {
		return fmt.Errorf("log: mark %s: %w", segments[0].name, err)
	}
	c := info.Config
	c.Metadata = maps.Clone(c.Metadata)
	if c.Metadata == nil {
		c.Metadata = make(map[string]string)
	}
	change(&c)
	if _, err := l.js.js.UpdateStream(ctx, c); err != nil {
		return fmt.Errorf("log: mark %s: %w", c.Name, apiError(err))
	}
	l.marked.Store(refusalOf(c) != nil)
	return nil
}

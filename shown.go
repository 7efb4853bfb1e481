package tally

import (
	"context"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// raw is a log whose appends do not wait for trees. The alias keeps the embedded field unexported, so that other
// packages cannot append past Log.
type raw = log.Log

// Log is the log of a store. It reads like a [log.Log], and appends like one, with one difference: an append returns
// when the files of trees in mode sync show it. If they do not, the ack comes together with an *events.TreeError, and the
// events are stored.
//
// Every append of a store goes through it, in this process and, through the owner's service, in others.
type Log struct {
	*raw
	shows   func(ctx context.Context, at events.Offset, subs ...events.Subject) error // nil: this process has no trees
	unshown bool
	refer   func(context.Context, events.Event) (events.Event, error) // Store.ByReference
}

// withoutTrees returns the same log, whose appends do not wait for trees.
func (l *Log) withoutTrees() *Log { return &Log{raw: l.raw, unshown: true, refer: l.refer} }

// Append is [log.Log.Append].
func (l *Log) Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error) {
	ack, err := l.raw.Append(ctx, sub, expect, evs...)
	return l.shown(ctx, sub, ack, err)
}

// AppendBuffered is [log.Log.AppendBuffered]. If a tree in mode sync shows the subject, it takes as long as Append:
// files show only durable events.
func (l *Log) AppendBuffered(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error) {
	ack, err := l.raw.AppendBuffered(ctx, sub, expect, evs...)
	return l.shown(ctx, sub, ack, err)
}

// AppendSeries is [log.Log.AppendSeries], with one difference: large data are kept by reference, as Store.Append keeps
// them.
func (l *Log) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (ack log.Ack, added int, err error) {
	if evs, err = l.referred(ctx, sub, evs); err != nil {
		return log.Ack{}, 0, err
	}
	ack, added, err = l.raw.AppendSeries(ctx, sub, expect, evs...)
	ack, err = l.shown(ctx, sub, ack, err)
	return ack, added, err
}

// referred returns the events with large data replaced by references.
func (l *Log) referred(ctx context.Context, sub events.Subject, evs []events.Event) ([]events.Event, error) {
	isLarge := func(e events.Event) bool { return len(e.Data) > l.MaxData() }
	if l.refer == nil || !slices.ContainsFunc(evs, isLarge) {
		return evs, nil
	}
	evs = slices.Clone(evs)
	for i, e := range evs {
		if !isLarge(e) {
			continue
		}
		if e.Subject == (events.Subject{}) {
			e.Subject = sub
		}
		e = l.Stamp(e)
		err := e.Validate()
		if err == nil {
			evs[i], err = l.refer(ctx, e)
		}
		if err != nil {
			return nil, err
		}
	}
	return evs, nil
}

// AppendAll is [log.Log.AppendAll].
func (l *Log) AppendAll(ctx context.Context, parts ...log.Part) ([]log.Ack, error) {
	acks, err := l.raw.AppendAll(ctx, parts...)
	if err != nil {
		return acks, err
	}
	var last log.Ack
	var subs []events.Subject
	for i, p := range parts {
		if len(p.Events) > 0 {
			last.Last, last.Unshown, subs = max(last.Last, acks[i].Last), acks[i].Unshown, append(subs, p.Subject)
		}
	}
	return acks, l.show(ctx, last, subs...)
}

// AppendAsync is [log.Log.AppendAsync].
func (l *Log) AppendAsync(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) *Pending {
	return &Pending{l, sub, l.raw.AppendAsync(ctx, sub, expect, evs...)}
}

// AppendAsyncBuffered is [log.Log.AppendAsyncBuffered]; see AppendBuffered.
func (l *Log) AppendAsyncBuffered(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) *Pending {
	return &Pending{l, sub, l.raw.AppendAsyncBuffered(ctx, sub, expect, evs...)}
}

// Pending is an append under way.
type Pending struct {
	l      *Log
	sub    events.Subject
	stored *log.Pending
}

// Done is closed when the outcome of the append is known. Wait may take longer.
func (p *Pending) Done() <-chan struct{} { return p.stored.Done() }

// Wait returns the append's result when files show it. If ctx ends before the events are stored,
// Wait returns ctx.Err(), and the append goes on.
func (p *Pending) Wait(ctx context.Context) (log.Ack, error) {
	ack, err := p.stored.Wait(ctx)
	return p.l.shown(ctx, p.sub, ack, err)
}

// shown waits for the files of an append, unless that failed.
func (l *Log) shown(ctx context.Context, sub events.Subject, ack log.Ack, err error) (log.Ack, error) {
	if err != nil {
		return ack, err
	}
	return ack, l.show(ctx, ack, sub)
}

// show waits until trees in mode sync show an acknowledged append. The error is an *events.TreeError.
func (l *Log) show(ctx context.Context, ack log.Ack, subs ...events.Subject) error {
	if l.unshown {
		return nil
	}
	if ack.Unshown != nil {
		return ack.Unshown
	}
	own := slices.DeleteFunc(subs, func(sub events.Subject) bool { return sub.Kind == events.KindBlob || sub.Kind == events.KindUnit })
	if l.shows == nil || ack.Last == 0 || len(own) == 0 {
		return nil // the event that refers to the blob is appended after it
	}
	return l.shows(ctx, ack.Last, own...)
}

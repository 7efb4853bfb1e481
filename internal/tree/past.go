package tree

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// past is a store as of an offset. Appends through it depend on that state. If the log has changed since, they return
// errMoved, and no callee retries with the newer state.
//
// A past sees the records that it appended itself.
type past struct {
	layouts.Target
	upto  atomic.Uint64
	actor string
}

// errMoved reports that the log has changed the state that an edit depends on.
var errMoved = errors.New("the log has moved on")

func (p *past) Loader() *projector.Loader {
	l := p.Target.Loader()
	return &projector.Loader{Source: l.Source, Snapshots: l.Snapshots, Logger: l.Logger, MaxValue: l.MaxValue, ReadOnly: true, Upto: events.Offset(p.upto.Load())}
}

// saw makes appended records visible.
func (p *past) saw(ack log.Ack) {
	for {
		was := p.upto.Load()
		if was == 0 || uint64(ack.Last) <= was || p.upto.CompareAndSwap(was, uint64(ack.Last)) {
			return
		}
	}
}

func (p *past) Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error) {
	ack, err := p.Target.Append(ctx, sub, expect, p.stamped(evs)...)
	p.saw(ack)
	return ack, moved(err)
}

func (p *past) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error) {
	ack, n, err := p.Target.AppendSeries(ctx, sub, expect, p.stamped(evs)...)
	p.saw(ack)
	return ack, n, moved(err)
}

// AppendAll appends to several subjects, all or nothing.
func (p *past) AppendAll(ctx context.Context, parts ...log.Part) ([]log.Ack, error) {
	for i := range parts {
		parts[i].Events = p.stamped(parts[i].Events)
	}
	acks, err := p.Target.(allAppender).AppendAll(ctx, parts...)
	for _, ack := range acks {
		p.saw(ack)
	}
	return acks, moved(err)
}

type allAppender interface {
	AppendAll(ctx context.Context, parts ...log.Part) ([]log.Ack, error)
}

func (p *past) stamped(evs []events.Event) []events.Event {
	list := make([]events.Event, len(evs))
	for i, e := range evs {
		list[i] = e.WithExtension(events.ExtActor, p.actor)
	}
	return list
}

func moved(err error) error {
	if errors.Is(err, log.ErrConflict) {
		return fmt.Errorf("%w: %v", errMoved, err) //nolint:errorlint // a conflict would be decided again
	}
	return err
}

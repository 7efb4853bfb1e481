package tavern

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/tend"
	"github.com/tallylog/tally/projector"
)

// Names of the daemons.
const (
	DaemonDelivery = "delivery"
	DaemonDispatch = "dispatch"
	DaemonJanitor  = "janitor"
)

// DaemonNames are those of all daemons.
func DaemonNames() []string { return []string{DaemonDelivery, DaemonDispatch, DaemonJanitor} }

// DaemonOptions say what daemons decide that is a matter of choice. The zero value keeps
// what the dead have left.
type DaemonOptions struct {
	Agents  AgentWindows
	Orphans time.Duration // from when an owner is gone until what it had is taken away; 0: never
}

// Daemons returns the daemons of a store, those that are named, all if none is:
//
//   - delivery tells the senders of messages that were not answered in time, that a receiver
//     would not take, or that lie with one who is gone;
//   - dispatch ends items of queues whose attempts are used up, recovers flows whose worker
//     was lost, and has agents whose lease is over be in error;
//   - janitor archives and purges agents that were stopped, deletes documents that are
//     expired, and takes away what belonged to somebody who is gone.
//
// Each decision rests on what the log says, and is an append that has no effect if that is
// so no more: daemons may run in several processes at once. None takes away bytes.
func Daemons(st *tally.Store, o DaemonOptions, names ...string) ([]tend.Daemon, error) {
	if len(names) == 0 {
		names = DaemonNames()
	}
	var list []tend.Daemon
	for _, name := range names {
		d := &daemon{st: st, o: o, name: name}
		switch name {
		case DaemonDelivery:
			d.rounds = []round{{what: projector.DueOverdue, decide: (*daemon).overdue}, {what: projector.DueGone, decide: (*daemon).left}, {what: projector.DueHandover, decide: (*daemon).refused}}
		case DaemonDispatch:
			d.rounds = []round{{what: projector.DueQueue, decide: whole((*daemon).queue)}, {what: projector.DueFlow, decide: whole((*daemon).flow)}, {what: projector.DueAgentLease, decide: whole((*daemon).agent)}}
		case DaemonJanitor:
			d.rounds = d.janitor()
		default:
			return nil, &events.InvalidError{Field: "daemon", Reason: fmt.Sprintf("%q: want one of %s", name, strings.Join(DaemonNames(), ", "))}
		}
		list = append(list, d)
	}
	return list, nil
}

// janitor is what the janitor looks at: what has no window stays.
func (d *daemon) janitor() []round {
	list := []round{{what: projector.DueDocument, decide: whole((*daemon).expired)}}
	for _, r := range []round{
		{projector.DueAgentEnded, d.o.Agents.Archive, whole((*daemon).agent)},
		{projector.DueAgentArchived, d.o.Agents.Purge, whole((*daemon).agent)},
		{projector.DueOverlay, d.o.Orphans, whole((*daemon).orphan)},
		{projector.DueOrphan, d.o.Orphans, whole((*daemon).orphan)},
	} {
		if r.window > 0 {
			list = append(list, r)
		}
	}
	return list
}

// daemon is a [tend.Daemon].
type daemon struct {
	st     *tally.Store
	o      DaemonOptions
	name   string
	rounds []round
}

// round is what a daemon looks at of one sort.
type round struct {
	what   string
	window time.Duration // from when something is listed for until something is due
	decide func(d *daemon, ctx context.Context, due tend.Due, now time.Time) iter.Seq2[Decision, error]
}

// whole has all decisions on a subject taken before the first is made.
func whole(decide func(*daemon, context.Context, tend.Due, time.Time) ([]Decision, error)) func(*daemon, context.Context, tend.Due, time.Time) iter.Seq2[Decision, error] {
	return func(d *daemon, ctx context.Context, due tend.Due, now time.Time) iter.Seq2[Decision, error] {
		return func(yield func(Decision, error) bool) {
			list, err := decide(d, ctx, due, now)
			if err != nil {
				yield(Decision{}, err)
				return
			}
			for _, dec := range list {
				if !yield(dec, nil) {
					return
				}
			}
		}
	}
}

// Name implements [tend.Daemon].
func (d *daemon) Name() string { return d.name }

// Look implements [tend.Daemon].
func (d *daemon) Look(ctx context.Context, work tend.Work, now time.Time) (res tend.Looked, err error) {
	for _, r := range d.rounds {
		do := func(due tend.Due) error { return d.settle(ctx, &res, r, due, now) }
		if err := res.Each(ctx, work, r.what, now, r.window, do); err != nil {
			return res, err
		}
	}
	return res, nil
}

// maxVerdicts bounds how often is decided anew because a subject has moved on meanwhile.
const maxVerdicts = 8

// in is the daemon in a namespace.
func (d *daemon) in(namespace string) (*daemon, error) {
	if namespace == d.st.Namespace() {
		return d, nil
	}
	st, err := d.st.In(namespace)
	return &daemon{st: st, o: d.o, name: d.name}, err
}

// settle decides on a subject until nothing is due there any more.
func (d *daemon) settle(ctx context.Context, res *tend.Looked, r round, due tend.Due, now time.Time) error {
	d, err := d.in(due.Subject.Namespace)
	if err != nil {
		return err
	}
	var unshown error // files do not show all of what is stored
	for try := 1; ; try++ {
		void := false
		for v, err := range r.decide(d, ctx, due, now) {
			if err != nil {
				return err
			}
			res.Soonest(v.Next)
			made, err := v.Make(ctx, d.st)
			if !events.IsStored(err) {
				return err
			}
			unshown = cmp.Or(unshown, err)
			switch {
			case made:
				res.Made = append(res.Made, tend.Decision{Subject: v.Parts[0].Subject, What: v.Why})
			case len(v.Parts) > 0:
				res.Refused++
				void = true
			}
		}
		if !void {
			return unshown
		}
		if try == maxVerdicts {
			res.Soonest(now.Add(time.Second))
			return unshown
		}
	}
}

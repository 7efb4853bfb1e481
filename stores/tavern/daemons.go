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
	"github.com/tallylog/tally/internal/daemon"
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
func Daemons(st *tally.Store, o DaemonOptions, names ...string) ([]daemon.Daemon, error) {
	if len(names) == 0 {
		names = DaemonNames()
	}
	var list []daemon.Daemon
	for _, name := range names {
		d := &decider{st: st, o: o, name: name}
		switch name {
		case DaemonDelivery:
			d.rounds = []round{{what: projector.DueOverdue, decide: (*decider).overdue}, {what: projector.DueGone, decide: (*decider).left}, {what: projector.DueHandover, decide: (*decider).refused}}
		case DaemonDispatch:
			d.rounds = []round{{what: projector.DueQueue, decide: whole((*decider).queue)}, {what: projector.DueFlow, decide: whole((*decider).flow)}, {what: projector.DueAgentLease, decide: whole((*decider).agent)}}
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
func (d *decider) janitor() []round {
	list := []round{{what: projector.DueDocument, decide: whole((*decider).expired)}}
	for _, r := range []round{
		{projector.DueAgentEnded, d.o.Agents.Archive, whole((*decider).agent)},
		{projector.DueAgentArchived, d.o.Agents.Purge, whole((*decider).agent)},
		{projector.DueOverlay, d.o.Orphans, whole((*decider).orphan)},
		{projector.DueOrphan, d.o.Orphans, whole((*decider).orphan)},
	} {
		if r.window > 0 {
			list = append(list, r)
		}
	}
	return list
}

// decider is a [daemon.Daemon].
type decider struct {
	st     *tally.Store
	o      DaemonOptions
	name   string
	rounds []round
}

// round is what a daemon looks at of one sort.
type round struct {
	what   string
	window time.Duration // from when something is listed for until something is due
	decide func(d *decider, ctx context.Context, due daemon.Due, now time.Time) iter.Seq2[Decision, error]
}

// whole has all decisions on a subject taken before the first is made.
func whole(decide func(*decider, context.Context, daemon.Due, time.Time) ([]Decision, error)) func(*decider, context.Context, daemon.Due, time.Time) iter.Seq2[Decision, error] {
	return func(d *decider, ctx context.Context, due daemon.Due, now time.Time) iter.Seq2[Decision, error] {
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

// Name implements [daemon.Daemon].
func (d *decider) Name() string { return d.name }

// Look implements [daemon.Daemon].
func (d *decider) Look(ctx context.Context, work daemon.Work, now time.Time) (res daemon.Looked, err error) {
	for _, r := range d.rounds {
		do := func(due daemon.Due) error { return d.settle(ctx, &res, r, due, now) }
		if err := res.Each(ctx, work, r.what, now, r.window, do); err != nil {
			return res, err
		}
	}
	return res, nil
}

// maxVerdicts bounds how often is decided anew because a subject has moved on meanwhile.
const maxVerdicts = 8

// in is the daemon in a namespace.
func (d *decider) in(namespace string) (*decider, error) {
	if namespace == d.st.Namespace() {
		return d, nil
	}
	st, err := d.st.In(namespace)
	return &decider{st: st, o: d.o, name: d.name}, err
}

// settle decides on a subject until nothing is due there any more.
func (d *decider) settle(ctx context.Context, res *daemon.Looked, r round, due daemon.Due, now time.Time) error {
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
				res.Made = append(res.Made, daemon.Decision{Subject: v.Parts[0].Subject, What: v.Why})
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

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

// DaemonNames returns the names of all daemons.
func DaemonNames() []string { return []string{DaemonDelivery, DaemonDispatch, DaemonJanitor} }

// DaemonOptions configure daemons. The zero value keeps everything that ended agents and owners have left.
type DaemonOptions struct {
	Agents  AgentWindows
	Orphans time.Duration // time from an owner's end until its belongings are removed; 0: never
}

// Daemons returns daemons of a store: the named ones, or all.
//
//   - delivery notifies senders of messages that were not answered in time, that a receiver refused, or whose receiver
//     is gone;
//   - dispatch ends queue items whose attempts are used up, recovers flows whose worker was lost, and sets agents whose
//     lease has ended to the state error;
//   - janitor archives and purges agents that were stopped, deletes expired documents, and removes the belongings of
//     owners that are gone.
//
// Each decision is based on the log, and is an append that has no effect if its basis has changed. So daemons may run
// in several processes at once. No daemon deletes stored bytes.
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

// janitor returns the janitor's rounds. Without a window it removes nothing.
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

// round is one class of subjects that a daemon decides on.
type round struct {
	what   string
	window time.Duration // from the time for which a subject is listed until it is due
	decide func(d *decider, ctx context.Context, due daemon.Due, now time.Time) iter.Seq2[Decision, error]
}

// whole adapts a function that makes all decisions on a subject before the first one is appended.
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

// Decide implements [daemon.Daemon].
func (d *decider) Decide(ctx context.Context, work daemon.Work, now time.Time) (res daemon.Result, err error) {
	for _, r := range d.rounds {
		do := func(due daemon.Due) error { return d.settle(ctx, &res, r, due, now) }
		if err := res.Each(ctx, work, r.what, now, r.window, do); err != nil {
			return res, err
		}
	}
	return res, nil
}

// maxVerdicts bounds the decisions on one subject that changes meanwhile.
const maxVerdicts = 8

// in returns the daemon for a namespace.
func (d *decider) in(namespace string) (*decider, error) {
	if namespace == d.st.Namespace() {
		return d, nil
	}
	st, err := d.st.In(namespace)
	return &decider{st: st, o: d.o, name: d.name}, err
}

// settle decides on a subject until nothing is due there.
func (d *decider) settle(ctx context.Context, res *daemon.Result, r round, due daemon.Due, now time.Time) error {
	d, err := d.in(due.Subject.Namespace)
	if err != nil {
		return err
	}
	var unshown error // an error of trees: the decision is stored, but files do not show it
	for try := 1; ; try++ {
		stale := false
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
				stale = true
			}
		}
		if !stale {
			return unshown
		}
		if try == maxVerdicts {
			res.Soonest(now.Add(time.Second))
			return unshown
		}
	}
}

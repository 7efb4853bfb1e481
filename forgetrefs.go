package tally

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/projector"
)

// unnamed plans blobs, imported files and secrets that only planned records name.
func (x *forgetting) unnamed(ctx context.Context) error {
	list, err := x.st.loader.Unreferenced(ctx, x.st.config.Namespace, slices.Clone(x.plan.Subjects), x.left)
	if err != nil {
		return err
	}
	for _, sub := range list {
		if kind, err := x.workOf(ctx, sub); err != nil || kind.isWork {
			continue
		}
		if err := x.whole(ctx, sub); err != nil {
			return err
		}
	}
	return nil
}

// units plans the copies that redo records have of planned records.
func (x *forgetting) units(ctx context.Context) error {
	if len(x.plan.Records) == 0 {
		return nil
	}
	for rec, err := range x.st.Log.Read(ctx, events.Range{Kind: events.KindUnit}) {
		if rec, err = x.whatIs(ctx, rec, err); err != nil {
			return err
		}
		if rec.Type != events.TypeUnitAppended {
			continue
		}
		copies, err := rec.Copies()
		if err != nil {
			x.unreached("record %v is no redo record that can be read: %v", rec.Offset, err)
			continue
		}
		planned := erasure.Record{Offset: rec.Offset, Subject: rec.Subject}
		for i, e := range copies {
			at, ok := x.copies[maphash.String(x.seed, e.MsgID())]
			if !ok {
				continue
			}
			turns := x.plan.Records[at].Turns
			out, err := erasure.Erase(e, x.plan.Receipt, turns)
			if err != nil {
				turns = nil
				if out, err = erasure.Erase(e, x.plan.Receipt, nil); err != nil {
					return fmt.Errorf("record %v: %w", rec.Offset, err)
				}
			}
			if !out.Equal(e) {
				planned.Copies = append(planned.Copies, erasure.Copy{Index: i, Turns: turns})
				planned.Bytes += lost(e, out)
			}
		}
		if planned.Copies != nil {
			x.plan.Records = append(x.plan.Records, planned)
		}
	}
	return nil
}

// A lineage is a session with the session that started it and the one of which it is a fork.
type lineage struct {
	sub          events.Subject
	first        events.Offset
	parent, fork string
}

// lineage returns the sessions of the namespace that have a parent or are forks, in the order of their first records.
func (x *forgetting) lineage(ctx context.Context) (list []lineage, err error) {
	for info, err := range x.st.Log.Subjects(ctx, x.st.config.Namespace, events.KindSession) {
		if err != nil {
			return nil, err
		}
		o, err := x.st.loader.Peek(ctx, info.Subject)
		if err = projector.Tolerate(err); err != nil {
			return nil, err
		}
		l := lineage{sub: info.Subject, first: o.First()}
		if p := o.Ledger().Parent; p != nil {
			l.parent = p.Session
		}
		if f := o.Ledger().Fork; f != nil {
			l.fork = f.Session
		}
		if l.parent != "" || l.fork != "" {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b lineage) int { return cmp.Compare(a.first, b.first) })
	return list, nil
}

// copiedTitle plans the first record of a fork if it has a title that its session loses. If the record has other content,
// too, it stays and is listed.
func (x *forgetting) copiedTitle(ctx context.Context, l lineage) error {
	for rec, err := range x.st.Log.Read(ctx, events.Range{Subject: l.sub, Limit: 1}) {
		if rec, err = x.whatIs(ctx, rec, err); err != nil {
			return err
		}
		p, err := events.Decode(rec.Type, rec.Data)
		created, ok := p.(*events.SessionCreated)
		if err != nil || !ok || !slices.Contains(x.titles[events.Session(l.sub.Namespace, l.fork)], created.Title) {
			continue
		}
		if !reflect.DeepEqual(*created, events.SessionCreated{Kind: created.Kind, CreatedAt: created.CreatedAt, Title: created.Title, Fork: created.Fork}) {
			x.unreached("%s: it has the title of %s", l.sub.Name(), l.fork)
			continue
		}
		if err := x.add(ctx, rec, nil); err != nil {
			return err
		}
	}
	return nil
}

// forks adds the forks of planned sessions, and orders the subjects by their first records: a fork follows its parent.
func (x *forgetting) forks(ctx context.Context) error {
	if !slices.ContainsFunc(x.plan.Subjects, events.Subject.IsSession) {
		return nil
	}
	all, err := x.lineage(ctx)
	if err != nil {
		return err
	}
	var behind []events.Subject // forks, in their order
	for _, l := range all {
		if l.fork == "" || !x.isPlanned[events.Session(l.sub.Namespace, l.fork)] {
			continue
		}
		x.isPlanned[l.sub] = true
		behind = append(behind, l.sub)
		if err := x.copiedTitle(ctx, l); err != nil {
			return err
		}
	}
	x.plan.Subjects = slices.DeleteFunc(x.plan.Subjects, func(s events.Subject) bool { return slices.Contains(behind, s) })
	x.plan.Subjects = append(x.plan.Subjects, behind...)
	return nil
}

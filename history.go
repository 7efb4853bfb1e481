package tally

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Change is a revision of a document: a write or a deletion. It has no content; Read loads that.
type Change struct {
	Subject events.Subject
	projector.Revision
	st *Store
}

// Read returns the document as of the change. If the change deleted it, or it was purged since, the error is
// ErrNotFound.
func (c Change) Read(ctx context.Context) (*Document, error) {
	doc, err := c.st.loader.Document(ctx, c.Subject, c.Offset)
	if doc != nil && slices.Contains(doc.Damaged, c.Offset) {
		return nil, &events.DamageError{Offset: c.Offset}
	}
	if err != nil {
		return nil, err
	}
	if doc.Last().Offset != c.Offset {
		return nil, fmt.Errorf("%s at %v: %w", c.Subject.Name(), c.Offset, ErrNotFound)
	}
	rev := *doc.Last()
	rev.Number = 0
	return documentOf(c.Subject, rev, doc.Data), nil
}

// History returns revisions of a document, newest first: at most limit, 0 for all, below an offset, 0 for the newest.
// It includes revisions under earlier names, without the deletions of the renames, and revisions before a deletion, but
// none that were purged. If the document has no revisions, the error is ErrNotFound. If some cannot be read, the others
// come with a *projector.HoleError.
func (d *Documents) History(ctx context.Context, kind, id string, below events.Offset, limit int) ([]Change, error) {
	sub, err := d.subject(kind, id)
	if err != nil {
		return nil, err
	}
	if below == 1 {
		return nil, nil
	}
	var list []Change
	var lost []events.Offset
	for c, err := range d.st.backward(ctx, sub, max(below, 1)-1) {
		if damage, is := errors.AsType[*events.DamageError](err); is {
			lost = append(lost, damage.Offset)
			continue
		}
		if err != nil {
			return nil, err
		}
		if list = append(list, c); len(list) == limit {
			break
		}
	}
	if below == 0 && isNothing(list) && len(lost) == 0 {
		return nil, fmt.Errorf("%s: %w", sub.Name(), ErrNotFound)
	}
	return list, projector.HoleOf(sub, lost)
}

// isNothing reports whether revisions, newest first, are empty or only a purge.
func isNothing(list []Change) bool { return len(list) == 0 || list[0].IsPurge() && len(list) == 1 }

// ReadAt returns a document as of a position: "head" or "" for now, an offset such as "@1234", the n-th revision of its
// history "#3", "~2" for two revisions before the newest, a time such as "2026-08-22T10:00Z", "-10m" for ten minutes
// before the newest revision, or "e:" and the beginning of an event's id. A deletion counts as a revision. If it is the
// newest one at the position, the error is ErrNotFound. If a lost record may be the revision there, the error is
// *events.DamageError.
func (d *Documents) ReadAt(ctx context.Context, kind, id, position string) (*Document, error) {
	p, err := projector.ParsePosition(position)
	if err != nil {
		return nil, err
	}
	if p.IsHead() {
		return d.Read(ctx, kind, id)
	}
	sub, err := d.subject(kind, id)
	if err != nil {
		return nil, err
	}
	list, err := d.st.history(ctx, sub)
	if projector.Tolerate(err) != nil || err != nil && !p.IsOffset() { // if one is missing, the numbers of the others are unknown
		return nil, projector.Refuse(err)
	}
	hole, _ := errors.AsType[*projector.HoleError](err)
	if hole != nil { // a lost record may be the revision there
		for _, at := range hole.Damaged {
			list = append(list, Change{sub, projector.Revision{Offset: at}, d.st})
		}
		slices.SortFunc(list, func(a, b Change) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	revisions := make([]projector.Revision, len(list))
	for i, c := range list {
		revisions[i] = c.Revision
	}
	n, missing := p.Revision(sub, revisions)
	if missing != nil {
		return nil, missing
	}
	if hole != nil && slices.Contains(hole.Damaged, list[n].Offset) {
		return nil, &events.DamageError{Offset: list[n].Offset}
	}
	return list[n].Read(ctx)
}

// history returns the readable revisions of a document, oldest first, including those under earlier names.
func (st *Store) history(ctx context.Context, sub events.Subject) ([]Change, error) {
	list, err := st.Documents().History(ctx, sub.Kind, sub.ID, 0, 0)
	slices.Reverse(list)
	return list, err
}

// backward yields the revisions of a document up to an offset, 0 for all, newest first, merged with those under earlier
// names. For one that cannot be read it yields an *events.DamageError. It reads only as far as the caller iterates.
func (st *Store) backward(ctx context.Context, sub events.Subject, upto events.Offset) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		var names []*name
		add := func(sub events.Subject, upto events.Offset) error {
			n := st.name(ctx, sub, upto)
			names = append(names, n)
			return n.step()
		}
		err := add(sub, upto)
		defer func() {
			for _, n := range names {
				n.stop()
			}
		}()
		for last := events.Offset(0); err == nil; {
			for _, n := range names {
				for _, damage := range n.lost {
					if !yield(Change{}, damage) {
						return
					}
				}
				n.lost = nil
			}
			n := slices.MaxFunc(names, func(a, b *name) int { return cmp.Compare(a.at.Offset, b.at.Offset) })
			c := n.at
			if c.Offset == 0 {
				return
			}
			if c.Offset != last && !yield(c, nil) { // a name that the document had twice has each revision twice
				return
			}
			before, at := events.Subject{}, events.Offset(0)
			if c.Offset != last && len(names) <= projector.MaxRenames {
				before, at, err = st.renamedFrom(ctx, c)
			}
			if err == nil && at > 0 {
				err = add(before, at)
			}
			if last = c.Offset; err == nil {
				err = n.step()
			}
		}
		yield(Change{}, err)
	}
}

// name is the walk over the revisions under one name of a document, newest first.
type name struct {
	st   *Store
	sub  events.Subject
	at   Change  // offset 0: there are no more
	lost []error // *events.DamageError of records before at, not reported yet
	next func() (projector.Revision, error, bool)
	stop func()
}

func (st *Store) name(ctx context.Context, sub events.Subject, upto events.Offset) *name {
	n := &name{st: st, sub: sub}
	n.next, n.stop = iter.Pull2(st.loader.Revisions(ctx, sub, upto))
	return n
}

func (n *name) step() error {
	rev, err, ok := n.next()
	for ; ok && events.IsDamage(err); rev, err, ok = n.next() {
		n.lost = append(n.lost, err)
	}
	n.at = Change{}
	if ok && err == nil {
		rev.Number = 0
		n.at = Change{n.sub, rev, n.st}
	}
	return err
}

// renamedFrom returns the earlier name of a document that a revision states, and the revision there that it continues.
// It returns offset 0 if the statement is false: anybody can write such a link. A rename names that revision as its
// base, and the next record of the earlier name is the deletion with the new name.
func (st *Store) renamedFrom(ctx context.Context, c Change) (events.Subject, events.Offset, error) {
	for _, l := range c.Meta.Links {
		from, err := events.ParseSubject(c.Subject.Namespace, l.To)
		if l.Rel != relRenamed || err != nil || from.IsSession() || from == c.Subject {
			continue
		}
		next := projector.Revision{}
		for rev, err := range st.loader.Revisions(ctx, from, 0) {
			if err != nil {
				return from, 0, err
			}
			if rev.Offset <= c.Meta.Base {
				to, _, err := next.RenamedTo.Parse(from.Namespace)
				if rev.Offset == c.Meta.Base && next.Reason == events.ReasonRenamed && err == nil && to == c.Subject {
					return from, rev.Offset, nil
				}
				break
			}
			next = rev
		}
	}
	return events.Subject{}, 0, nil
}

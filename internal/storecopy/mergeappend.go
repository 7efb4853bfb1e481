package storecopy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// appender appends the records of a merge in the order of the original.
type appender struct {
	m    *Merger
	ctx  context.Context
	done *Merge
}

// unit is an append to several subjects whose events are collected.
type unit struct {
	want  map[string]bool // ids of events that have not come yet
	rows  []*row          // its subjects that are merged
	parts map[*row][]pending
}

// pending is a record that is not appended yet.
type pending struct {
	rec   events.Record
	place int64
}

// take appends a record, or collects it.
func (a *appender) take(rec events.Record) error {
	m := a.m
	if rec.Subject.Namespace == events.PersonalNamespace {
		return nil
	}
	if rec.Subject.Kind == events.KindUnit {
		return a.begin(rec)
	}
	r, err := m.table.find(rec.Subject)
	if err != nil || r == nil || !r.goes() {
		return err
	}
	p := pending{rec: rec}
	missing, err := m.table.get("SELECT place FROM record WHERE subject=? AND at0=? AND at1 IS NULL", []any{r.n, rec.Offset}, &p.place)
	if err != nil {
		return err
	}
	u := m.units[rec.Subject]
	if u == nil {
		if !missing {
			return nil
		}
		return a.append(r, p)
	}
	if !u.want[rec.MsgID()] {
		if err := a.flush(u); err != nil || !missing {
			return err
		}
		return a.append(r, p)
	}
	delete(u.want, rec.MsgID())
	if missing {
		u.parts[r] = append(u.parts[r], p)
	}
	if len(u.want) == 0 {
		return a.flush(u)
	}
	return nil
}

// begin begins to collect the events of a redo record.
func (a *appender) begin(rec events.Record) error {
	if rec.Type != events.TypeUnitAppended {
		return nil
	}
	copies, err := rec.Copies()
	if err != nil {
		return nil
	}
	u := &unit{want: make(map[string]bool), parts: make(map[*row][]pending)}
	for _, e := range copies {
		r, err := a.m.table.find(e.Subject)
		if err != nil {
			return err
		}
		if r == nil || !r.goes() {
			continue
		}
		u.want[e.MsgID()] = true
		if !slices.Contains(u.rows, r) {
			u.rows = append(u.rows, r)
		}
	}
	for _, r := range u.rows {
		if err := a.flush(a.m.units[r.sub]); err != nil {
			return err
		}
		a.m.units[r.sub] = u
	}
	return nil
}

func (a *appender) flushAll() error {
	for _, u := range a.m.units {
		if err := a.flush(u); err != nil {
			return err
		}
	}
	return nil
}

// flush appends the collected events of a unit, all or nothing. If a part is refused, the others are appended by
// themselves.
func (a *appender) flush(u *unit) error {
	if u == nil {
		return nil
	}
	for _, r := range u.rows {
		if a.m.units[r.sub] == u {
			delete(a.m.units, r.sub)
		}
	}
	var parts []log.Part
	var rows []*row
	for _, r := range u.rows {
		list := u.parts[r]
		if len(list) == 0 || !r.goes() {
			continue
		}
		evs, err := a.translate(r, list)
		if err != nil {
			return err
		}
		if evs != nil {
			parts, rows = append(parts, log.Part{Subject: r.sub, Expect: log.At(events.Offset(r.last[to])), Events: evs}), append(rows, r)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	if len(parts) > 1 {
		acks, err := a.m.To.AppendAll(a.ctx, parts...)
		if err == nil {
			for i, r := range rows {
				if acks[i].Duplicate {
					r.why = twice(u.parts[r])
					continue
				}
				if err := a.appended(r, u.parts[r], acks[i]); err != nil {
					return err
				}
			}
			return nil
		}
		if !refuses(err) {
			return err
		}
	}
	for _, r := range rows {
		if err := a.append(r, u.parts[r]...); err != nil {
			return err
		}
	}
	return nil
}

// refuses reports whether an error of an append concerns its subject alone.
func refuses(err error) bool {
	return errors.Is(err, log.ErrConflict) || errors.Is(err, log.ErrTooLarge) || isType[*events.InvalidError](err) || isType[*events.TypeError](err) || isType[*log.PartialError](err) || isType[*needError](err)
}

func isType[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}

// append appends records of one subject.
func (a *appender) append(r *row, list ...pending) error {
	evs, err := a.translate(r, list)
	if err != nil || evs == nil {
		return err
	}
	ack, err := a.m.To.AppendBuffered(a.ctx, r.sub, log.At(events.Offset(r.last[to])), evs...)
	switch {
	case err != nil && refuses(err):
		r.why = "the target refuses " + list[0].rec.Offset.String() + ": " + err.Error()
		return nil
	case err != nil:
		return err
	case ack.Duplicate:
		r.why = twice(list)
		return nil
	}
	return a.appended(r, list, ack)
}

func twice(list []pending) string {
	return fmt.Sprintf("it has the event of %v twice", list[0].rec.Offset)
}

// appended notes where records are in the target.
func (a *appender) appended(r *row, list []pending, ack log.Ack) error {
	m := a.m
	at := make([]events.Offset, 0, len(list))
	if ack.Last-ack.First == events.Offset(len(list)-1) {
		for i := range list {
			at = append(at, ack.First+events.Offset(i))
		}
	} else {
		for rec, err := range m.To.Read(a.ctx, events.Range{Subject: r.sub, After: ack.First - 1, Upto: ack.Last, Buffered: true}) {
			if err != nil {
				return err
			}
			at = append(at, rec.Offset)
		}
	}
	if len(at) != len(list) {
		return fmt.Errorf("%s: %d records were appended, and %d are there", r.sub.Name(), len(list), len(at))
	}
	for i, p := range list {
		if err := m.table.exec("UPDATE record SET at1=? WHERE subject=? AND place=?", at[i], r.n, p.place); err != nil {
			return err
		}
		if i == 0 && r.parent != 0 && r.fork[to] == 0 {
			if fork := forkOf(p.rec); fork != nil {
				parent, err := m.table.number(r.parent)
				if err != nil {
					return err
				}
				x, _, err := m.table.below(parent, from, fork.Offset, true)
				if err != nil {
					return err
				}
				r.fork[to] = x.at[to]
			}
		}
	}
	r.count[to] += int64(len(list))
	r.last[to], r.fresh = int64(ack.Last), true
	m.head = max(m.head, ack.Last)
	m.last = r.sub
	m.ended += len(list)
	a.done.Records += len(list)
	return nil
}

// needError reports a record that names another one which the target does not have.
type needError struct{ what string }

func (e *needError) Error() string { return e.what }

// translate returns the events as the target is to have them, or nil if their subject is refused.
func (a *appender) translate(r *row, list []pending) ([]events.Event, error) {
	evs := make([]events.Event, len(list))
	for i, p := range list {
		pointers, err := a.m.table.pointers(p.rec.Type)
		if err == nil {
			err = a.inPlace(p.rec, pointers)
		}
		if err == nil {
			evs[i], err = p.rec.MapOffsets(pointers, func(ref events.Reference) (events.Offset, error) { return a.translated(r, p.rec, ref) })
		}
		if err != nil && refuses(err) {
			r.why = fmt.Sprintf("%v: %v", p.rec.Offset, err)
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return evs, nil
}

// inPlace refuses a record whose data are kept by reference and name offsets: other data would have another reference.
func (a *appender) inPlace(rec events.Record, pointers []string) error {
	if len(rec.Data) > 0 || rec.Extensions[events.ExtDataRef] == "" || a.m.Loader == nil {
		return nil
	}
	whole, err := projector.Resolve(a.ctx, a.m.Loader.Source, rec, events.MaxValue)
	if err != nil {
		return nil // readers cannot read it either
	}
	whole.Extensions = nil
	_, err = whole.MapOffsets(pointers, func(ref events.Reference) (events.Offset, error) {
		if ref.Offset == 0 {
			return 0, nil
		}
		return 0, &needError{"its data are kept by reference, and name " + ref.Offset.String()}
	})
	return err
}

// translated returns the offset in the target of what a record names. What the original does not have becomes the
// largest offset, which no store has; what comes before the subject becomes 0.
func (a *appender) translated(r *row, rec events.Record, ref events.Reference) (events.Offset, error) {
	t := a.m.table
	other, err := t.find(ref.Subject)
	switch {
	case err != nil || ref.Offset == 0:
		return 0, err
	case other == r && ref.Offset >= rec.Offset:
		return events.MaxOffset, nil
	case other == nil && ref.Exact:
		return events.MaxOffset, nil
	case other == nil:
		return 0, nil
	case other != r:
		if err := a.flush(a.m.units[ref.Subject]); err != nil {
			return 0, err
		}
	}
	isFork := other.n == r.parent && int64(ref.Offset) == r.fork[from]
	x, found, err := t.below(other, from, ref.Offset, !ref.Exact && !isFork)
	switch {
	case err != nil:
		return 0, err
	case ref.Exact && (!found || x.at[from] != int64(ref.Offset)):
		return events.MaxOffset, nil
	case !found && isFork:
		return 0, &needError{fmt.Sprintf("a fork of %s at %v, where it has no record", ref.Subject.Name(), ref.Offset)}
	case !found:
		return 0, nil
	case x.at[to] == 0:
		return 0, &needError{fmt.Sprintf("it names %v of %s, which the target does not have", ref.Offset, ref.Subject.Name())}
	}
	if x.r == r && !ref.Exact && x.at[from] < int64(ref.Offset) {
		return a.between(x)
	}
	return events.Offset(x.at[to]), nil
}

// between returns an offset behind a record and before the next one of its subject, if there is one: a rewind to behind a
// checkpoint keeps the checkpoint. Otherwise it returns the record's offset.
func (a *appender) between(x spot) (events.Offset, error) {
	next := int64(a.m.head) + 1 // the next append is not before that
	_, err := a.m.table.get("SELECT at1 FROM record WHERE subject=? AND place=? AND at1 NOT NULL", []any{x.r.n, x.place + 1}, &next)
	if next > x.at[to]+1 {
		x.at[to]++
	}
	return events.Offset(x.at[to]), err
}

package storecopy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/registry"
)

// read notes the records of a store behind those that were noted before.
func (m *Merger) read(ctx context.Context, s side) error {
	end, err := m.source(s).Durable(ctx)
	if err != nil {
		return err
	}
	at, id, err := m.table.noted(s)
	if s == from {
		m.end = end
	} else {
		m.head = end
	}
	if err != nil || at >= end {
		return err
	}
	n := 0
	for rec, err := range m.source(s).Read(ctx, events.Range{After: at, Upto: end}) {
		if damage, lost := errors.AsType[*events.DamageError](err); lost {
			if s == from {
				err = m.table.exec("INSERT OR IGNORE INTO lost VALUES(?)", damage.Offset)
			} else {
				err = nil
			}
			if err != nil {
				return err
			}
			continue
		}
		if err == nil {
			err = m.note(s, rec)
		}
		if err != nil {
			return err
		}
		at, id = rec.Offset, rec.MsgID()
		if n++; n%commitEvery == 0 {
			if err := m.reached(s, at, id); err != nil {
				return err
			}
			m.progress([]string{"reading the original", "reading the target"}[s], at, end)
		}
	}
	return m.reached(s, at, id)
}

func (m *Merger) progress(what string, at, end events.Offset) {
	if m.Progress != nil {
		m.Progress(what, at, end)
	}
}

// reached notes up to where a store was read.
func (m *Merger) reached(s side, at events.Offset, id string) error {
	err := m.table.exec("UPDATE side SET cursor=?, id=? WHERE side=?", at, id, s)
	if err == nil {
		err = m.table.commit()
	}
	if err == nil && len(m.table.rows) > maxRows {
		err = m.table.forget()
	}
	return err
}

// note notes a record of a store.
func (m *Merger) note(s side, rec events.Record) error {
	switch {
	case rec.Subject.Kind == events.KindUnit:
		return nil // its events come by themselves
	case rec.Subject.Namespace == events.PersonalNamespace:
		return m.table.exec("UPDATE side SET personal=personal+1 WHERE side=?", s)
	}
	r, err := m.table.of(rec.Subject)
	if err != nil || int64(rec.Offset) <= r.last[s] {
		return err // noted when it was appended
	}
	valid, err := m.isValid(s, r, rec)
	if err != nil {
		return err
	}
	before := r.last[s]
	r.last[s] = int64(rec.Offset)
	if !valid {
		return m.table.exec("UPDATE side SET invalid=invalid+1 WHERE side=?", s)
	}
	if fork := forkOf(rec); fork != nil && before == 0 {
		parent, err := m.table.of(events.Session(rec.Subject.Namespace, fork.Session))
		if err != nil {
			return err
		}
		r.parent, r.fork[s] = parent.n, int64(fork.Offset)
	}
	if err := m.place(s, r, rec); err != nil {
		return err
	}
	if rec.Subject.Kind == events.KindType {
		if err := m.noteType(s, rec); err != nil {
			return err
		}
	}
	if s == to {
		return nil
	}
	if why := isWork(rec); why != "" && r.refused == "" {
		r.refused = why
	}
	return m.noteNeeds(r, rec)
}

// isValid reports whether a record has a place. One that no log would take has none, and neither has a rewind to before
// everything, which no offset of another store could name.
func (m *Merger) isValid(s side, r *row, rec events.Record) (bool, error) {
	if rec.Erased() == "" && rec.Validate() != nil {
		return false, nil
	}
	if fork := forkOf(rec); fork != nil {
		return r.last[s] == 0, nil
	}
	if rec.Type != events.TypeSessionRewound {
		return true, nil
	}
	p, err := events.DecodeAs[events.SessionRewound](rec.Event)
	if err != nil || p.To >= rec.Offset {
		return err == nil, nil
	}
	_, found, err := m.table.below(r, s, p.To, false)
	return found, err
}

// forkOf returns the fork that a record declares at its offset, or nil.
func forkOf(rec events.Record) *events.Fork {
	if rec.Type != events.TypeSessionCreated {
		return nil
	}
	p, err := events.DecodeAs[events.SessionCreated](rec.Event)
	if err != nil || p.Fork == nil || p.Fork.Offset >= rec.Offset {
		return nil
	}
	return p.Fork
}

// place assigns the next place of its subject to a record. If the other store has another record there, the subject is
// refused. Documents of types are equal if the types are: each store registers them with events of its own.
func (m *Merger) place(s side, r *row, rec events.Record) error {
	if strings.HasPrefix(r.refused, differs) {
		return nil
	}
	id := rec.MsgID()
	if rec.Subject.Kind == events.KindType {
		id = ""
	}
	r.count[s]++
	have, other := "", events.Offset(0)
	found, err := m.table.get(fmt.Sprintf("SELECT id, coalesce(at%d, 0) FROM record WHERE subject=? AND place=?", 1-s), []any{r.n, r.count[s]}, &have, &other)
	switch {
	case err != nil:
		return err
	case !found:
		return m.table.exec(fmt.Sprintf("INSERT INTO record(subject, place, id, at%d) VALUES(?, ?, ?, ?)", s), r.n, r.count[s], id, rec.Offset)
	case have != id:
		at := [2]events.Offset{other, other}
		at[s] = rec.Offset
		r.refused = fmt.Sprintf("%s: its record %d is %v in the original, and another event, %v, in the target", differs, r.count[s], at[from], at[to])
		r.count[to] = r.count[s] - 1 // from here on the original has something that the target does not have
		return nil
	}
	r.fresh = true
	return m.table.exec(fmt.Sprintf("UPDATE record SET at%d=? WHERE subject=? AND place=?", s), rec.Offset, r.n, r.count[s])
}

// differs begins the reason of a refusal because of different histories.
const differs = "the histories differ"

// noteType notes the registration of a type.
func (m *Merger) noteType(s side, rec events.Record) error {
	typ, err := registry.Parse(rec.Subject.ID, rec.Data)
	if err != nil || rec.Type != events.TypeDocumentWritten {
		return nil // without effect
	}
	text, err := json.Marshal(typ.Offsets)
	if err != nil {
		return err
	}
	if err := m.table.exec("INSERT OR IGNORE INTO type VALUES(?, ?, ?, ?)", typ.Name, s, typ.Moves, string(text)); err != nil {
		return err
	}
	list, err := m.table.texts("SELECT moves, offsets FROM type WHERE name=? ORDER BY side", typ.Name)
	if err != nil || len(list) < 2 || list[0] == list[1] {
		return err
	}
	r, err := m.table.of(rec.Subject)
	if err == nil && r.refused == "" {
		r.refused = fmt.Sprintf("the type has moves %s and offsets %s in the original, and moves %s and offsets %s in the target", list[0][0], list[0][1], list[1][0], list[1][1])
	}
	return err
}

// work are the kinds of sessions whose bodies name offsets that only their store knows, or whose work would be under way
// in two stores at once.
var work = []string{events.KindQueue, events.KindItem, events.KindInbox, events.KindFlow, events.KindLock, events.KindAgent}

// isWork returns why a record makes its subject one that is not merged, or "".
func isWork(rec events.Record) string {
	kind := rec.Subject.Kind
	if rec.Subject.IsSession() {
		kind = events.KindOf(rec.Subject.ID)
		switch p, _ := events.Decode(rec.Type, rec.Data); p := p.(type) {
		case *events.SessionCreated:
			if !slices.Contains(work, kind) {
				kind = p.Kind
			}
		case *events.RunCreated:
			if p.Run.Kind == "changeset" {
				kind = p.Run.Kind
			}
		}
	}
	if slices.Contains(work, kind) || kind == "overlay" || kind == "changeset" {
		return "it is of kind " + kind + ": its work belongs to one store"
	}
	return ""
}

// noteNeeds notes which other subjects a record names. Those that it names by offset it cannot do without.
func (m *Merger) noteNeeds(r *row, rec events.Record) error {
	need := func(sub events.Subject, hard bool) error {
		if sub == r.sub || sub.Validate() != nil {
			return nil
		}
		other, err := m.table.of(sub)
		if err != nil {
			return err
		}
		return m.table.exec("INSERT OR IGNORE INTO need VALUES(?, ?, ?)", r.n, other.n, hard)
	}
	if fork := forkOf(rec); fork != nil {
		if err := need(events.Session(rec.Subject.Namespace, fork.Session), true); err != nil {
			return err
		}
	}
	if !events.IsKnown(rec.Type) {
		if err := need(registry.Subject(rec.Type), true); err != nil {
			return err
		}
	}
	if sum, ok := events.ParseBlobRef(rec.Extensions[events.ExtDataRef]); ok {
		if err := need(events.Document(rec.Subject.Namespace, events.KindBlob, sum), false); err != nil {
			return err
		}
	}
	_, err := rec.MapOffsets(nil, func(ref events.Reference) (events.Offset, error) {
		if ref.Subject.IsSession() {
			return ref.Offset, nil
		}
		return ref.Offset, need(ref.Subject, ref.Exact)
	})
	return err
}

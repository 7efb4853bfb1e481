package storecopy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// Verify compares the states of the subjects that were merged since they were last compared, with places in the
// subjects instead of offsets. Verified.Sessions counts the subjects. A subject of which one store has erased records
// is not compared; the result has their number as Without.
func (m *Merger) Verify(ctx context.Context) (v Verified, err error) {
	t := m.table
	for n := int64(0); m.Loader != nil; {
		if err := t.forget(); err != nil {
			return v, err
		}
		found, err := t.get("SELECT n FROM subject WHERE n > ? AND fresh AND chosen AND why = '' AND count0 > 0 AND count1 > 0 ORDER BY n LIMIT 1", []any{n}, &n)
		if err != nil || !found {
			return v, errors.Join(err, t.commit())
		}
		r, err := t.number(n)
		if err != nil {
			return v, err
		}
		x := spot{r: r}
		if _, err := t.get("SELECT at0, at1 FROM record WHERE subject=? AND place=?", []any{n, min(r.count[from], r.count[to])}, &x.at[from], &x.at[to]); err != nil {
			return v, err
		}
		if err := m.compare(ctx, &v, x); err != nil {
			return v, err
		}
		m.progress("comparing", events.Offset(x.at[from]), m.end)
	}
	return v, nil
}

// compare compares the states of a subject as of a record.
func (m *Merger) compare(ctx context.Context, v *Verified, x spot) error {
	same, once, err := m.sameRecords(ctx, x)
	if err == nil && same && x.r.sub.IsSession() {
		same, err = m.sameStates(ctx, x)
	}
	if _, lost := errors.AsType[*projector.HoleError](err); lost || events.IsDamage(err) {
		return nil // the state of the original is not known
	}
	switch {
	case err != nil:
		return fmt.Errorf("compare %s: %w", x.r.sub.Name(), err)
	case once:
		v.Without++
	case !same:
		v.differ(events.Offset(x.at[from]), x.r.sub, "the state in the target, at %v, differs", events.Offset(x.at[to]))
		return nil
	default:
		v.Sessions++
	}
	x.r.fresh = false
	return nil
}

// sameRecords compares the types of a subject's records, and the contents of documents. once reports that one store has
// erased a record that the other one has.
func (m *Merger) sameRecords(ctx context.Context, x spot) (same, once bool, err error) {
	type content struct {
		sum    string
		erased bool
	}
	var contents [2][]content
	for s, source := range []projector.Source{m.Loader.Source, m.To} {
		for rec, err := range source.Read(ctx, events.Range{Subject: x.r.sub, Upto: events.Offset(x.at[s]), Buffered: true}) {
			if err != nil {
				return false, false, err
			}
			_, exact, err := m.placeOf(x.r, side(s), rec.Offset)
			if err != nil {
				return false, false, err
			}
			if !exact {
				continue // it is invalid
			}
			text := rec.Type
			if rec.Type == events.TypeDocumentWritten && rec.Subject.Kind != events.KindType {
				text += " " + string(rec.Data)
			}
			contents[s] = append(contents[s], content{events.DerivedID(text), rec.Erased() != ""})
		}
	}
	if len(contents[from]) != len(contents[to]) {
		return false, false, nil
	}
	for i, a := range contents[from] {
		b := contents[to][i]
		once = once || a.erased != b.erased
		if a != b && a.erased == b.erased {
			return false, once, nil
		}
	}
	return true, once, nil
}

// sameStates compares the threads, the list in effect and the ledger of a session.
func (m *Merger) sameStates(ctx context.Context, x spot) (bool, error) {
	var texts [2][]byte
	for s, l := range []*projector.Loader{m.Loader, {Source: m.To}} {
		state, err := l.Session(ctx, x.r.sub, events.Offset(x.at[s]))
		if err != nil {
			return false, err
		}
		p := placer{m, x.r, side(s)}
		live, err := p.live(state.History.Live(state.Offset()))
		if err != nil {
			return false, err
		}
		ledger, err := p.replace(reflect.ValueOf(*state.Ledger))
		if err != nil {
			return false, err
		}
		threads, err := p.replace(reflect.ValueOf(state.Threads))
		if err != nil {
			return false, err
		}
		if texts[s], err = json.Marshal([]any{live, ledger, threads}); err != nil {
			return false, err
		}
	}
	return bytes.Equal(texts[from], texts[to]), nil
}

// placeOf returns a text for the last record of a subject at or below an offset, which is the same for both stores. exact
// reports that the record is at the offset.
func (m *Merger) placeOf(r *row, s side, at events.Offset) (text string, exact bool, err error) {
	x, found, err := m.table.below(r, s, at, false)
	if err != nil || !found {
		return "before", false, err
	}
	return fmt.Sprintf("%s#%d", x.r.sub.Name(), x.place), x.at[s] == int64(at), nil
}

// placer puts places into a state of a session.
type placer struct {
	m *Merger
	r *row // the session
	s side
}

// live returns the places of intervals. Those between which there are only invalid records are one.
func (p placer) live(list []projector.Interval) (places [][2]string, err error) {
	var end spot
	for _, i := range list {
		first, _, err := p.m.table.below(p.r, p.s, i.From, false)
		if err != nil {
			return nil, err
		}
		last, _, err := p.m.table.below(p.r, p.s, i.To, false)
		if err != nil {
			return nil, err
		}
		name := func(x spot) string { return fmt.Sprintf("%s#%d", x.r.sub.Name(), x.place) }
		if n := len(places); n > 0 && end.r.n == first.r.n && first.place == end.place+1 {
			places[n-1][1] = name(last)
		} else {
			places = append(places, [2]string{name(first), name(last)})
		}
		end = last
	}
	return places, nil
}

func (p placer) place(sub events.Subject, at events.Offset) (string, error) {
	r, err := p.m.table.find(sub)
	if err != nil || r == nil {
		return "unknown", err
	}
	text, _, err := p.m.placeOf(r, p.s, at)
	return text, err
}

// uncompared are the fields of a state that depend on invalid records, or on when a store recorded an event.
var uncompared = map[reflect.Type][]string{
	reflect.TypeFor[projector.Ledger]():   {"Records", "LastID", "LastAt", "LastGuessed"},
	reflect.TypeFor[projector.Rejected](): {"Reason"},
	reflect.TypeFor[projector.Cost]():     {"Time"},
}

// replace returns a value for JSON with places in the place of offsets.
func (p placer) replace(v reflect.Value) (any, error) {
	switch x := v.Interface().(type) {
	case events.Offset:
		return p.place(p.r.sub, x)
	case events.Fork:
		at, err := p.place(events.Session(p.r.sub.Namespace, x.Session), x.Offset)
		return []string{x.Session, at}, err
	case events.Lineage:
		at, err := p.place(events.Session(p.r.sub.Namespace, x.Session), x.Offset)
		x.Offset = 0
		return []any{x, at}, err
	case events.DocRef:
		doc, at, err := x.Parse(p.r.sub.Namespace)
		if err != nil || at == 0 {
			return x, nil
		}
		place, err := p.place(doc, at)
		return []string{doc.Name(), place}, err
	case events.Field:
		return p.field(x)
	case []byte:
		return x, nil
	case events.Raw:
		return string(x), nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil, nil
		}
		return p.replace(v.Elem())
	case reflect.Slice, reflect.Array:
		list := make([]any, 0, v.Len())
		for i := range v.Len() {
			if rejected, is := v.Index(i).Interface().(projector.Rejected); is {
				if _, exact, err := p.m.placeOf(p.r, p.s, rejected.Offset); err != nil || !exact {
					continue // it is invalid
				}
			}
			x, err := p.replace(v.Index(i))
			if err != nil {
				return nil, err
			}
			list = append(list, x)
		}
		return list, nil
	case reflect.Map:
		all := make(map[string]any, v.Len())
		for _, key := range v.MapKeys() {
			x, err := p.replace(v.MapIndex(key))
			if err != nil {
				return nil, err
			}
			all[fmt.Sprint(key)] = x
		}
		return all, nil
	case reflect.Struct:
		all := make(map[string]any, v.NumField())
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() || slices.Contains(uncompared[v.Type()], f.Name) {
				continue
			}
			x, err := p.replace(v.Field(i))
			if err != nil {
				return nil, err
			}
			all[f.Name] = x
		}
		return all, nil
	}
	return v.Interface(), nil
}

// field replaces the offsets in a field that an update sets.
func (p placer) field(f events.Field) (any, error) {
	var recipe events.DocRef
	var cursors map[string]events.Offset
	var value any = string(f.Value)
	var err error
	switch {
	case f.Name == "recipe" && rawjson.Unmarshal(f.Value, &recipe) == nil:
		value, err = p.replace(reflect.ValueOf(recipe))
	case f.Name == "cursors" && rawjson.Unmarshal(f.Value, &cursors) == nil:
		value, err = p.replace(reflect.ValueOf(cursors))
	}
	return []any{f.Name, value}, err
}

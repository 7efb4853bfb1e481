package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/projector"
)

// Fold is a view with one state for each subject that has an event of its types.
type Fold[S any] struct {
	Name    string        // lower-case letters, digits, - and _
	Version int           // from 1
	Types   []events.Type // whose events Apply gets, with the older ones that they read; or tally's, by name

	New func() *S // makes the state of a subject without events; default: the zero value

	// Apply changes the state of f.Subject by an event. Events come in order. If Apply returns an error or panics, the
	// subject keeps the state before the event, and is in quarantine until Store.Retry.
	Apply func(s *S, f projector.Fact) error

	Encode func(*S) ([]byte, error) // to store a state; default: JSON
	Decode func([]byte, *S) error   // its inverse, into a state of New; default: JSON
}

func (d Fold[S]) empty() *S {
	if d.New != nil {
		return d.New()
	}
	return new(S)
}

func (d Fold[S]) decode(data []byte) (*S, error) {
	s := d.empty()
	if d.Decode != nil {
		return s, d.Decode(data, s)
	}
	return s, json.Unmarshal(data, s)
}

func (d Fold[S]) encode(s *S) ([]byte, error) {
	if d.Encode != nil {
		return d.Encode(s)
	}
	return json.Marshal(s)
}

const (
	readState  = "SELECT state FROM " + catalog.StatesTable + "{set} WHERE namespace=? AND kind=? AND id=?"
	writeState = "INSERT OR REPLACE INTO " + catalog.StatesTable + "{set} VALUES(?,?,?,?,?)"
	dropState  = "DELETE FROM " + catalog.StatesTable + "{set} WHERE namespace=? AND kind=? AND id=?"
)

// View returns the view.
func (d Fold[S]) View() View {
	o := catalog.Own{Name: d.Name, Version: d.Version, Types: d.Types, Tables: []string{catalog.StatesTable}, Schema: catalog.StatesSchema, Once: true,
		Forget: func(ctx context.Context, t catalog.Tables, sub events.Subject) error {
			return t.Exec(ctx, dropState, sub.Namespace, sub.Kind, sub.ID)
		}}
	if d.Apply != nil {
		o.Fold = d.fold
	}
	return o.View()
}

// fold implements catalog.Own.
func (d Fold[S]) fold(ctx context.Context, t catalog.Tables, sub events.Subject, again bool, facts iter.Seq2[projector.Fact, error]) error {
	s := d.empty()
	if !again {
		var data []byte
		found, err := t.Find(ctx, readState, []any{sub.Namespace, sub.Kind, sub.ID}, []any{&data})
		if found && err == nil {
			s, err = d.decode(data)
		}
		if err != nil {
			return err
		}
	}
	last, err := d.apply(s, facts)
	if err != nil || last == 0 {
		return err
	}
	data, err := d.encode(s)
	if err == nil && data == nil {
		data = []byte{}
	}
	if err == nil {
		err = t.Exec(ctx, writeState, sub.Namespace, sub.Kind, sub.ID, int64(last), data)
	}
	return err
}

// apply changes a state by events, and returns the offset of the last one, 0 without events.
func (d Fold[S]) apply(s *S, facts iter.Seq2[projector.Fact, error]) (last events.Offset, err error) {
	for f, err := range facts {
		if err == nil {
			err = d.Apply(s, f)
		}
		if err != nil {
			return last, err
		}
		last = f.Offset
	}
	return last, nil
}

// Get returns the state of a subject as the view has it, and the offset up to which the view has read: Store.Wait waits
// until the view has read an append. A subject without events has the state of New. If the subject is in quarantine,
// the error is a *QuarantineError. If no program has kept the view, Get folds the state from the log. If records of the
// subject are lost, the state comes with a *projector.HoleError.
func (d Fold[S]) Get(ctx context.Context, st *tally.Store, sub events.Subject) (s S, at events.Offset, err error) {
	data, at, aside, err := d.View().State(ctx, st.ViewsDir(), sub)
	if errors.Is(err, catalog.ErrNoView) {
		if at, err = st.Log.Durable(ctx); err == nil {
			s, err = d.At(ctx, st, sub, at)
		}
		return s, at, err
	}
	state := d.empty()
	if err == nil && data != nil {
		state, err = d.decode(data)
	}
	if err != nil {
		return s, at, fmt.Errorf("view %s: %s: %w", d.Name, sub.Name(), err)
	}
	if aside != nil {
		return *state, at, &QuarantineError{d.Name, *aside}
	}
	return *state, at, st.Lacks(ctx, d.Name, sub.Namespace, func(lost events.Subject) bool { return lost == sub })
}

// At folds the state of a subject as of an offset from the log; 0 is the end of the log. If records of the subject are
// lost, the state comes with a *projector.HoleError.
func (d Fold[S]) At(ctx context.Context, st *tally.Store, sub events.Subject, at events.Offset) (s S, err error) {
	v := d.View()
	if err := v.Err(); err != nil {
		return s, err
	}
	state := d.empty()
	_, err = d.apply(state, v.Effective(ctx, st.Loader(), sub, at))
	if projector.Tolerate(err) != nil {
		return s, fmt.Errorf("view %s: %s: %w", d.Name, sub.Name(), err)
	}
	return *state, err
}

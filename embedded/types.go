package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/registry"
	"github.com/tallylog/tally/log"
)

// register registers the types of the program and of its views that a store lacks, and returns the store. After an error
// it closes the store.
func register(ctx context.Context, st *tally.Store, o Options) (*tally.Store, error) {
	err := o.register(ctx, st)
	for _, v := range o.Views {
		for _, t := range v.Older() {
			if err == nil {
				err = registerOlder(ctx, st, t)
			}
		}
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return st, nil
}

func (o Options) register(ctx context.Context, st *tally.Store) error {
	for _, t := range o.types() {
		e, _, err := registry.Register(ctx, st, t, false)
		if err != nil {
			return err
		}
		if !e.HasSchema(t) {
			o.Logger.Warn("the store has another schema of a type, which stays: tally types add replaces it", "type", t.Name, "registered", e.Last)
		}
	}
	return nil
}

// registerOlder registers a type that newer types read. It must have their movement: a view folds both alike.
func registerOlder(ctx context.Context, st *tally.Store, t events.Type) error {
	e, err := registry.Find(ctx, st.Log, t.Name)
	switch {
	case err != nil:
		return fmt.Errorf("type %s: %w", t.Name, err)
	case e == nil:
		_, _, err = registry.Register(ctx, st, t, false)
		return err
	case e.Moves != t.Moves:
		return &events.TypeError{Name: t.Name, Field: "moves", Have: e.Moves, Want: t.Moves}
	}
	return nil
}

// types returns the types of the program and of its views.
func (o Options) types() []events.Type {
	list := slices.Clone(o.Types)
	for _, v := range o.Views {
		for _, t := range v.Types() {
			isListed := slices.ContainsFunc(list, func(have events.Type) bool { return have.Name == t.Name && have.Moves == t.Moves })
			if !events.IsKnown(t.Name) && !isListed {
				list = append(list, t)
			}
		}
	}
	return list
}

// admit is a log.Host.Admit.
type admit = func(context.Context, []log.Part) (func([]log.Ack, error), error)

// both admits what two functions admit. It asks the second one only if the first one agrees.
func both(a, b admit) admit {
	return func(ctx context.Context, parts []log.Part) (func([]log.Ack, error), error) {
		one, err := a(ctx, parts)
		if err != nil {
			return nil, err
		}
		two, err := b(ctx, parts)
		switch {
		case one == nil:
			return two, err
		case err != nil:
			one(nil, err)
			return nil, err
		case two == nil:
			return one, nil
		}
		return func(acks []log.Ack, err error) {
			one(acks, err)
			two(acks, err)
		}, nil
	}
}

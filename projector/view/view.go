package view

import (
	"context"
	"fmt"
	"iter"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/projector"
)

// View is a view for Options.Views of package embedded. Own and Fold make views.
type View = catalog.View

// Tables are the tables of an Own. A text is one statement, in which {set} ends the name of each table: a rebuild fills
// a second set of tables. All statements for an event are in one transaction with the progress of the view.
type Tables interface {
	// Exec executes an INSERT, UPDATE, DELETE or REPLACE.
	Exec(ctx context.Context, text string, args ...any) error
	// Find reads the first row of a SELECT into pointers, and reports whether there is one.
	Find(ctx context.Context, text string, args, into []any) (bool, error)
}

// Own is a view with tables of its own.
type Own struct {
	Name    string        // lower-case letters, digits, - and _
	Version int           // from 1
	Types   []events.Type // whose events Apply gets, with the older ones that they read; or tally's, by name

	Tables []string // names of the tables, without {set}
	Schema string   // their CREATE TABLE statements, with {set} at the end of each name, and indexes as UNIQUE(...)

	// Apply writes what an event means. The events of a subject come in order, and f.Subject is that subject, also for
	// events that a fork inherited. The order of events of different subjects is not determined: what Apply writes for
	// a subject must not depend on others. If Apply returns an error or panics, the subject stays as it was before the
	// event, and is in quarantine until Store.Retry.
	Apply func(ctx context.Context, t Tables, f projector.Fact) error

	// Forget deletes all rows of a subject. After that, Apply gets its events from the first one on.
	Forget func(ctx context.Context, t Tables, sub events.Subject) error
}

// View returns the view.
func (o Own) View() View {
	d := catalog.Own{Name: o.Name, Version: o.Version, Types: o.Types, Tables: o.Tables, Schema: o.Schema}
	if o.Apply != nil {
		d.Fold = func(ctx context.Context, t catalog.Tables, _ events.Subject, _ bool, facts iter.Seq2[projector.Fact, error]) error {
			for f, err := range facts {
				if err == nil {
					err = o.Apply(ctx, t, f)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
	if o.Forget != nil {
		d.Forget = func(ctx context.Context, t catalog.Tables, sub events.Subject) error { return o.Forget(ctx, t, sub) }
	}
	return d.View()
}

// QuarantineError reports that a view could not fold a record of a subject. The state that comes with it is that before
// the record. After the program has a remedy, Store.Retry folds the subject again.
type QuarantineError struct {
	View string
	projector.Quarantine
}

func (e *QuarantineError) Error() string {
	return fmt.Sprintf("view %s: %s is in quarantine since %v: %s", e.View, e.Subject.Name(), e.Offset, e.Reason)
}

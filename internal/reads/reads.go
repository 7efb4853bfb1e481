// Package reads answers questions about a store: one function for each question, for the commands and for the HTTP API.
// The structs of the answers are what the commands print with -o json.
//
// Queries may come from strangers. An invalid one is an [events.InvalidError] with the name of the member; an invalid
// position is a [projector.PositionError].
package reads

import (
	"context"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/prices"
	"github.com/tallylog/tally/projector"
)

// A Reader answers questions about one namespace of a store. The comment of each question names the fields that it
// needs.
type Reader struct {
	Store     *tally.Store
	Views     Views
	Prices    prices.Table
	Namespace string // of questions to views; questions to the store are about its own namespace
}

// Views are open views.
type Views struct {
	Dir     string
	Catalog catalog.Reader
	Durable events.Offset // lower bound of the store's last offset; 0: unknown
}

// OpenViews opens the views in a directory, or returns catalog.ErrNoView.
func OpenViews(ctx context.Context, dir string) (Views, error) {
	r, err := catalog.Open(ctx, dir)
	return Views{Dir: dir, Catalog: r}, err
}

// Close closes the views.
func (v Views) Close() error { return v.Catalog.Close() }

// AsOf returns the offset up to which an answer from several views is complete: the least of theirs.
func (v Views) AsOf(ctx context.Context, standings ...func(context.Context) (catalog.Standing, error)) (least projector.Cursor, err error) {
	for i, standing := range standings {
		s, err := standing(ctx)
		if err != nil {
			return least, err
		}
		head := max(least.Head, s.Cursor.Head, v.Durable)
		if i == 0 || s.Cursor.Offset < least.Offset {
			least = s.Cursor
		}
		least.Head = head
	}
	return least, nil
}

// A List is a page of answers from views.
type List[T any] struct {
	Items []T           `json:"items"`
	Next  string        `json:"next,omitempty"` // where the next page begins; absent on the last one
	AsOf  events.Offset `json:"asOf"`           // up to which the answer is complete

	Cursor projector.Cursor `json:"-"` // of AsOf
}

package reads

import (
	"context"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render"
)

// Hits are the turns that a search found.
type Hits struct {
	List[catalog.Hit]

	Rewound int `json:"rewound,omitempty"` // turns that match and are left out, because they are not in effect
}

// Search finds turns, from the views. The query's Namespace is that of the Reader.
func (r Reader) Search(ctx context.Context, q catalog.Lookup) (Hits, error) {
	q.Namespace = r.Namespace
	if q.Limit < 0 {
		return Hits{}, &events.InvalidError{Field: "limit", Reason: fmt.Sprintf("%d: want a number from 0", q.Limit)}
	}
	finder, err := catalog.OpenSearch(ctx, r.Views.Dir, r.Views.Catalog)
	if err != nil {
		return Hits{}, err
	}
	defer finder.Close()
	standing, err := finder.Standing(ctx)
	if err != nil {
		return Hits{}, err
	}
	found, err := finder.Find(ctx, q)
	if err != nil {
		return Hits{}, err
	}
	for i := range found.Hits {
		found.Hits[i].Session = render.ID(found.Hits[i].Session)
	}
	return Hits{List[catalog.Hit]{Items: nonNil(found.Hits), AsOf: standing.Cursor.Offset, Cursor: standing.Cursor}, found.Rewound}, nil
}

// nonNil returns an empty list instead of nil, which JSON would write as null.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

package reads

import (
	"context"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// DiffQuery compares two positions of a session.
type DiffQuery struct {
	Session  string
	From, To string // positions
	Limit    int    // the most turns of each list; 0: all
}

// Diff are the turns in which two positions differ.
type Diff struct {
	Leaves  []projector.TurnAt `json:"leaves"`         // only at the first position
	Returns []projector.TurnAt `json:"returns"`        // only at the second one
	More    *More              `json:"more,omitempty"` // absent if the lists have all turns
}

// More are the numbers of turns that the lists of a Diff leave out.
type More struct {
	Leaves  int `json:"leaves"`
	Returns int `json:"returns"`
}

// Diff compares two positions of a session of the store. If the session or a position does not exist, the error is
// tally.ErrNotFound.
func (r Reader) Diff(ctx context.Context, q DiffQuery) (Diff, error) {
	if q.Limit < 0 {
		return Diff{}, &events.InvalidError{Field: "limit", Reason: fmt.Sprintf("%d: want a number from 0", q.Limit)}
	}
	s, err := r.session(q.Session)
	if err != nil {
		return Diff{}, err
	}
	head, hole := s.Outline(ctx)
	if err := projector.Tolerate(hole); err != nil {
		return Diff{}, err
	}
	c, err := Compare(ctx, head, hole, q.From, q.To)
	if err != nil {
		return Diff{}, err
	}
	return c.Read(ctx, q.Limit)
}

// Comparison is two positions of a session, with the turns in which they differ.
type Comparison struct {
	From, To        *projector.Past
	Leaves, Returns projector.Turns
}

// Compare compares two positions of a session. hole is the damage that the session's outline came with.
func Compare(ctx context.Context, head *projector.Outline, hole error, from, to string) (c Comparison, err error) {
	if c.From, err = PastAt(ctx, head, hole, from); err != nil {
		return c, err
	}
	if c.To, err = PastAt(ctx, head, hole, to); err != nil {
		return c, err
	}
	c.Leaves, c.Returns = projector.Changes(c.From, c.To)
	return c, nil
}

// Read reads at most limit turns of each list, or all if it is 0.
func (c Comparison) Read(ctx context.Context, limit int) (d Diff, err error) {
	var more More
	if d.Leaves, more.Leaves, err = ReadTurns(ctx, c.Leaves, limit); err == nil {
		d.Returns, more.Returns, err = ReadTurns(ctx, c.Returns, limit)
	}
	if more != (More{}) {
		d.More = &more
	}
	return d, err
}

package reads

import (
	"context"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/registry"
	"github.com/tallylog/tally/projector"
)

// BranchesQuery selects records of a session.
type BranchesQuery struct {
	Session     string
	After, Upto events.Offset // records after the one and up to the other; 0: all
	Limit       int           // the most records; 0: all
}

// Branches are records of a session, each with the one that it grew from.
type Branches struct {
	Records []Grown       `json:"records"`
	Next    events.Offset `json:"next,omitempty"` // After of the next answer; absent on the last one
}

// Grown is a record with its place among the branches.
type Grown struct {
	Offset events.Offset `json:"offset"`
	After  events.Offset `json:"after"` // last live record before this one
	Live   bool          `json:"live"`
	Type   string        `json:"type"`
	Reason string        `json:"reason,omitempty"` // for which it is stale or rejected

	State  string        `json:"-"` // see StateOf
	Record events.Record `json:"-"`
}

// Branches returns records of a session of the store in order, without those that cannot be read, and the session. If
// the session does not exist, the error is tally.ErrNotFound.
func (r Reader) Branches(ctx context.Context, q BranchesQuery) (b Branches, s *projector.Session, err error) {
	if q.Limit < 0 {
		return b, nil, &events.InvalidError{Field: "limit", Reason: fmt.Sprintf("%d: want a number from 0", q.Limit)}
	}
	handle, err := r.session(q.Session)
	if err != nil {
		return b, nil, err
	}
	s, err = handle.Load(ctx, "")
	if err = projector.Tolerate(err); err != nil {
		return b, nil, err
	}
	moves, err := MovesOf(ctx, r.Store.Log, s.Ledger)
	if err != nil {
		return b, nil, err
	}
	b.Records = []Grown{}
	rng := events.Range{Subject: s.Subject, After: q.After, Upto: q.Upto}
	for rec, err := range events.Readable(r.Store.Loader().Shown(ctx, r.Store.Log.Read(ctx, rng))) {
		if err != nil {
			return b, nil, err
		}
		if q.Limit > 0 && len(b.Records) == q.Limit {
			b.Next = b.Records[q.Limit-1].Offset
			break
		}
		g := Grown{Offset: rec.Offset, After: s.History.LastLive(rec.Offset - 1), Live: s.History.IsLive(rec.Offset), Type: rec.Type, Record: rec.Record}
		g.State, g.Reason = StateOf(s.Ledger, g.Live, s.InEffect(rec.Record, moves), rec.Record)
		b.Records = append(b.Records, g)
	}
	return b, s, nil
}

// MovesOf returns which of a session's types of other vocabularies move with its threads.
func MovesOf(ctx context.Context, src projector.Source, l *projector.Ledger) (func(typ string) bool, error) {
	moves := make(map[string]bool)
	for _, f := range l.Unknown {
		e, err := registry.Find(ctx, src, f.Type)
		if err != nil {
			return nil, err
		}
		moves[f.Type] = e != nil && e.Moves == events.WithThread
	}
	return func(typ string) bool { return moves[typ] }, nil
}

// StateOf returns the state of a record in its session, and the reason. Records with the states live, kept and rewind
// are in effect, others are not.
func StateOf(l *projector.Ledger, isLive, inEffect bool, rec events.Record) (state, reason string) {
	for _, v := range l.Rejected {
		if v.Offset == rec.Offset {
			return "rejected", v.Reason
		}
	}
	switch {
	case rec.Type == events.TypeSessionRewound:
		return "rewind", ""
	case isLive:
		return "live", ""
	case inEffect:
		return "kept", ""
	case slices.Contains(l.Stale, rec.Offset):
		seen, _ := rec.Basis()
		return "stale", "its producer had seen " + seen.String() + ", which is not in effect any more"
	}
	return "rewound", ""
}

package ailoop

import (
	"context"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Revision is one change of a history's messages or pins.
type Revision struct {
	Offset     events.Offset     // LoadAt(Offset.String()) returns the snapshot after it
	Time       events.Timestamp  // time of the save
	Kind       RevisionKind      // kind of the change
	Messages   int               // in the snapshot after it
	Live       bool              // it is in effect: no rewind removed it
	Compaction *CompactionReport // for kind Compacted
}

// RevisionKind is the kind of a revision.
type RevisionKind string

// Kinds of revisions.
const (
	Extended  RevisionKind = "extended"  // messages were added
	Repinned  RevisionKind = "pinned"    // only pins changed
	Replaced  RevisionKind = "replaced"  // messages were changed or removed
	Compacted RevisionKind = "compacted" // replaced by a compaction
	Rewound   RevisionKind = "rewound"   // an earlier snapshot is in effect again
)

// Revisions lists every change of the history, the oldest first, including those that a rewind removed. If the
// history does not exist, the error is ErrNotFound.
func (h *History) Revisions(ctx context.Context) ([]Revision, error) {
	s, err := h.Session().Load(ctx, "")
	if err != nil {
		return nil, err
	}
	if s.Ledger.Created != 0 {
		if err := tally.CheckKind(s.Subject, s.Ledger, events.KindHistory); err != nil {
			return nil, err
		}
	}
	void := make(map[events.Offset]bool)
	for _, v := range s.Ledger.Rejected {
		void[v.Offset] = true
	}
	var list []Revision
	for rec, err := range h.st.Loader().Records(ctx, s) {
		if err == nil {
			rec, err = projector.Resolve(ctx, h.st.Log, rec, h.st.MaxValue())
		}
		if err != nil {
			return nil, err
		}
		r, ok := revisionOf(rec)
		if !ok || void[rec.Offset] {
			continue
		}
		r.Messages, r.Live = s.History.TurnsAt(events.MainThread, rec.Offset), s.History.IsLive(rec.Offset)
		list = append(list, r)
	}
	return list, nil
}

// revisionOf returns the revision that a record makes. ok is false if it changes no messages.
func revisionOf(rec events.Record) (r Revision, ok bool) {
	r = Revision{Offset: rec.Offset, Time: events.TimestampOf(rec.Time)}
	switch p := projector.Decode(rec).Payload.(type) {
	case *events.TurnAppended:
		r.Kind = Extended
	case *events.ThreadPinned:
		r.Kind = Repinned
	case *events.ThreadTruncated:
		r.Kind = Replaced
	case *events.ThreadReplaced:
		r.Kind = Replaced
		if p.Reason == "compact" {
			r.Kind = Compacted
			r.Compaction = &CompactionReport{Strategy: p.Strategy, Before: p.Before, After: p.After}
		}
	case *events.SessionRewound:
		r.Kind = Rewound
	}
	return r, r.Kind != ""
}

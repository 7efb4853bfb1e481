package errata

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
)

// Row is a run of a panel, or the marker of a rewind, with both its views.
// They belong together by the run's identity, never by their place in a list.
type Row struct {
	Summary   RunSummary
	Content   RunContent
	Offset    events.Offset // of the event that finished the run first, or of the rewind
	Withdrawn bool          // the run was rewound, or its answer came late
	Rewound   bool          // it is withdrawn, or a marker of an imported file means it
	Imported  bool          // a marker that was in an imported file

	rated     string // the model that was rated bad
	noSummary bool   // an imported run that stood in one of the two files only
	noContent bool
}

// IsMarker reports whether the row stands for a rewind.
func (r *Row) IsMarker() bool { return r.Summary.Type == panel.MarkerType }

// view is what is read from all records of a session.
type view struct {
	*panel.View
	head *projector.Session
	rows []Row
}

// view reads the session as it is now.
func (s *Session) view(ctx context.Context) (*view, error) {
	head, err := s.head(ctx)
	if err != nil {
		return nil, err
	}
	return s.viewAt(ctx, head)
}

// viewAt reads the session's own records up to where it was loaded: a fork
// inherits threads, but no runs.
func (s *Session) viewAt(ctx context.Context, head *projector.Session) (*view, error) {
	v := &view{View: panel.New(head), head: head}
	if head.Offset() == 0 {
		return v, nil
	}
	for f, err := range s.facts(ctx, s.Store().Log.Read(ctx, events.Range{Subject: s.Subject(), Upto: head.Offset()})) {
		if err != nil {
			return nil, fmt.Errorf("panel %s: %w", s.Subject().Name(), err)
		}
		v.Apply(f)
	}
	for _, r := range v.Rows() {
		row, err := rowOf(&r)
		if err != nil {
			return nil, fmt.Errorf("panel %s: %w", s.Subject().Name(), err)
		}
		v.rows = append(v.rows, row)
	}
	return v, nil
}

// facts reads records, those that a view looks into with their data.
func (s *Session) facts(ctx context.Context, records iter.Seq2[events.Record, error]) iter.Seq2[projector.Fact, error] {
	return func(yield func(projector.Fact, error) bool) {
		for rec, err := range records {
			if err == nil && panel.Wanted(rec.Type) {
				rec, err = projector.Resolve(ctx, s.Store().Log, rec, s.Store().MaxValue())
			}
			if !yield(projector.Decode(rec), err) || err != nil {
				return
			}
		}
	}
}

// rowOf reads a row. Another form of result than Result is an error that names the
// record.
func rowOf(r *panel.Row) (Row, error) {
	row := Row{Offset: r.Offset, Withdrawn: r.Withdrawn, Rewound: r.Rewound, Imported: r.Marker && !r.Live, rated: r.Rated,
		noSummary: r.Summary == nil, noContent: r.Content == nil}
	err := r.Malformed
	for _, x := range []struct {
		raw   json.RawMessage
		to    any
		field string
	}{{json.RawMessage(r.Shown()), &row.Summary, "summary"}, {json.RawMessage(r.Content), &row.Content, "content"}} {
		if x.raw == nil || err != nil {
			continue
		}
		if err = json.Unmarshal(x.raw, x.to); err != nil {
			err = &events.InvalidError{Field: x.field, Reason: fmt.Sprintf("of the record at %v: %v", r.Offset, err)}
		}
	}
	row.Summary.Run, row.Content.Run = r.Run, r.Run
	if sum := &row.Summary; sum.Rating == "bad" && sum.Selected != "" {
		// The original selects what it rates bad, as if it had won.
		row.rated, sum.Selected = sum.Selected, ""
	}
	return row, err
}

// Runs returns the runs of the session and the markers of its rewinds, oldest
// first.
func (s *Session) Runs(ctx context.Context) ([]Row, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	return v.rows, nil
}

// RunsAt returns them as they were when the session was as it was loaded.
func (s *Session) RunsAt(ctx context.Context, loaded *projector.Session) ([]Row, error) {
	v, err := s.viewAt(ctx, loaded)
	if err != nil {
		return nil, err
	}
	return v.rows, nil
}

// toolNames reads names of tools; null is none known.
func toolNames(raw json.RawMessage) []string {
	var names []string
	if json.Unmarshal(raw, &names) != nil {
		return nil
	}
	return names
}

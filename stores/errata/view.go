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

// Row is a run of a panel, or the marker of a rewind, with both its views. The run's id pairs the views, not their
// position in a list.
type Row struct {
	Summary   RunSummary
	Content   RunContent
	Offset    events.Offset // of the first event that finished the run, or of the rewind
	Withdrawn bool          // the run was rewound, or its answer was based on rewound turns
	Rewound   bool          // it is withdrawn, or a marker in an imported file refers to it
	Imported  bool          // a marker from an imported file

	rated     string // the model that was rated bad
	noSummary bool   // an imported run that only one of the two files has
	noContent bool
}

// IsMarker reports whether the row is the marker of a rewind.
func (r *Row) IsMarker() bool { return r.Summary.Type == panel.MarkerType }

// view is computed from all records of a session.
type view struct {
	*panel.View
	head *projector.Session
	rows []Row
}

// view reads the current session.
func (s *Session) view(ctx context.Context) (*view, error) {
	head, err := s.head(ctx)
	if err != nil {
		return nil, err
	}
	return s.viewAt(ctx, head)
}

// viewAt reads the session's own records up to the offset of head. A fork inherits threads, but no runs.
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

// facts decodes records, and resolves the data of those that a view uses.
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

// rowOf decodes a row. If the result has another form than Result, the error names the record.
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
		// The original selects a model that is rated bad, as if it had won.
		row.rated, sum.Selected = sum.Selected, ""
	}
	return row, err
}

// Runs returns the runs of the session and the markers of its rewinds, oldest first.
func (s *Session) Runs(ctx context.Context) ([]Row, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	return v.rows, nil
}

// RunsAt returns them as of the offset of a loaded session.
func (s *Session) RunsAt(ctx context.Context, loaded *projector.Session) ([]Row, error) {
	v, err := s.viewAt(ctx, loaded)
	if err != nil {
		return nil, err
	}
	return v.rows, nil
}

// toolNamesIn decodes names of tools; nil if they are unknown.
func toolNamesIn(raw json.RawMessage) []string {
	var names []string
	if json.Unmarshal(raw, &names) != nil {
		return nil
	}
	return names
}

package errata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
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
func (r *Row) IsMarker() bool { return r.Summary.Type == markerType }

// view is what is read from all records of a session.
type view struct {
	head *projector.Session
	born Metadata // as SaveInitialMeta was given it, or the file as it was imported
	rows []Row
	said map[string]*events.RunAnnotated // what persons said of a run last, by its id
}

// panel reads the view as it is now.
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
	v := &view{head: head, said: make(map[string]*events.RunAnnotated)}
	if head.Offset() == 0 {
		return v, nil
	}
	gone := takenBack(head.Ledger)
	for rec, err := range s.Store().Log.Read(ctx, events.Range{Subject: s.Subject(), Upto: head.Offset()}) {
		if err == nil && wanted(rec.Type) {
			rec, err = projector.Resolve(ctx, s.Store().Log, rec, s.Store().MaxValue())
		}
		if _, damaged := errors.AsType[*events.DamageError](err); damaged {
			continue // head.Damaged names it
		}
		if err == nil {
			err = v.apply(projector.Decode(rec), gone)
		}
		if err != nil {
			return nil, fmt.Errorf("panel %s: %w", s.Subject(), err)
		}
	}
	for i := range v.rows {
		v.annotate(&v.rows[i])
	}
	v.pairImported()
	return v, nil
}

// wanted reports whether the view looks into events of a type.
func wanted(typ string) bool {
	switch typ {
	case events.TypeRunFinished, events.TypeRunAnnotated, events.TypeSessionCreated, events.TypeSessionUpdated, events.TypeSessionRewound:
		return true
	}
	return false
}

// takenBack gives the rewinds that an undo took back.
func takenBack(l *projector.Ledger) map[events.Offset]bool {
	gone := make(map[events.Offset]bool)
	for _, r := range slices.Backward(l.Rewinds) {
		if r.Undoes != 0 && !gone[r.Offset] {
			gone[r.Undoes] = true
		}
	}
	return gone
}

// apply folds one record.
func (v *view) apply(f projector.Fact, gone map[events.Offset]bool) error {
	switch p := f.Payload.(type) {
	case *events.SessionCreated:
		if f.Offset == v.head.Ledger.Created && p.Raw != nil {
			// Somebody else's file may be anything: what cannot be read says nothing.
			_ = json.Unmarshal(p.Raw, &v.born)
		}
	case *events.SessionUpdated:
		if p.Raw != nil { // imported again
			v.born = Metadata{}
			_ = json.Unmarshal(p.Raw, &v.born)
		}
	case *events.RunFinished:
		return v.finished(f, p)
	case *events.RunAnnotated:
		v.annotated(p)
	case *events.SessionRewound:
		return v.rewound(f, p, gone)
	}
	return nil
}

// annotated keeps what was said last of each thing.
func (v *view) annotated(p *events.RunAnnotated) {
	if p.Run.Kind != runKind {
		return
	}
	have := v.said[p.Run.ID]
	if have == nil {
		v.said[p.Run.ID] = p
		return
	}
	for _, s := range []struct{ to, from **string }{{&have.Note, &p.Note}, {&have.Selected, &p.Selected}, {&have.Rating, &p.Rating}} {
		if *s.from != nil {
			*s.to = *s.from
		}
	}
	if p.AppliedFiles != nil {
		have.AppliedFiles = p.AppliedFiles
	}
	if p.Tags != nil {
		have.Tags = p.Tags
	}
}

// toolNames reads names of tools; null is none known.
func toolNames(raw json.RawMessage) []string {
	var names []string
	if json.Unmarshal(raw, &names) != nil {
		return nil
	}
	return names
}

func (v *view) finished(f projector.Fact, p *events.RunFinished) error {
	if p.Run.Kind != runKind {
		return nil
	}
	row, err := rowOf(f)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(v.rows, func(r Row) bool { return !r.IsMarker() && r.Summary.Run == p.Run.ID }); i >= 0 {
		row.Offset = v.rows[i].Offset // a newer version stands where the first one did
		v.rows[i] = *row
		return nil
	}
	v.rows = append(v.rows, *row)
	if slices.Contains(v.head.History.Late(), f.Offset) {
		v.mark(f, row.Summary.PromptHash, p.Run.ID)
	}
	return nil
}

// rowOf reads the result of a panel's run. Another form of result than
// Result is an error: it names the record.
func rowOf(f projector.Fact) (*Row, error) {
	p, ok := f.Payload.(*events.RunFinished)
	if !ok {
		return nil, nil
	}
	row := &Row{Offset: f.Offset}
	var result Result
	err := rawjson.Unmarshal(p.Result, &result)
	row.noSummary, row.noContent = result.Summary == nil, result.Content == nil
	if err == nil && !row.noSummary {
		err = json.Unmarshal(result.Summary, &row.Summary)
	}
	if err == nil && !row.noContent {
		err = json.Unmarshal(result.Content, &row.Content)
	}
	if err != nil {
		return nil, &events.InvalidError{Field: "result", Reason: fmt.Sprintf("of the record at %v: %v", f.Offset, err)}
	}
	row.Summary.Run, row.Content.Run = p.Run.ID, p.Run.ID
	return row, nil
}

// rewound adds the markers of a rewind that is in effect: one for each entry of
// the stack that it used up, or else for each run that it withdrew.
func (v *view) rewound(f projector.Fact, p *events.SessionRewound, gone map[events.Offset]bool) error {
	if p.Reason == "imported" && p.Raw != nil {
		row := Row{Offset: f.Offset, Imported: true}
		if err := json.Unmarshal(p.Raw, &row.Summary); err != nil {
			return &events.InvalidError{Field: "raw", Reason: fmt.Sprintf("of the record at %v: %v", f.Offset, err)}
		}
		v.rows = append(v.rows, row)
		return nil
	}
	i := slices.IndexFunc(v.head.Ledger.Rewinds, func(r projector.Rewind) bool { return r.Offset == f.Offset })
	if i < 0 || p.Undoes != 0 || gone[f.Offset] {
		return nil
	}
	runs := v.withdrawnBy(f.Offset)
	used := usedUp(v.head.Ledger.Rewinds[i])
	if len(used) == 0 {
		for _, row := range slices.Backward(runs) {
			v.mark(f, row.Summary.PromptHash, row.Summary.Run)
		}
		return nil
	}
	for _, e := range slices.Backward(used) {
		c := v.head.Ledger.Checkpoint(events.CheckpointRewind, e.ID)
		v.mark(f, promptHash(c.Prompt), runOf(c, e, &runs))
	}
	return nil
}

// usedUp gives the entries that a rewind takes from the stack, oldest first.
func usedUp(r projector.Rewind) []projector.StackEntry {
	if r.Checkpoint != "" {
		if i := slices.IndexFunc(r.Stack, func(e projector.StackEntry) bool { return e.ID == r.Checkpoint }); i >= 0 {
			return r.Stack[i:]
		}
		return nil
	}
	var used []projector.StackEntry
	for _, e := range r.Stack {
		if e.At >= r.To {
			used = append(used, e)
		}
	}
	return used
}

// runOf gives the run of an entry: the one that it names, or the oldest of those
// withdrawn after its point; that is taken from the list.
func runOf(c *projector.Checkpoint, e projector.StackEntry, runs *[]Row) string {
	i := slices.IndexFunc(*runs, func(r Row) bool {
		if c.Run != nil {
			return r.Summary.Run == c.Run.ID
		}
		return r.Offset > e.At
	})
	switch {
	case i >= 0:
		id := (*runs)[i].Summary.Run
		*runs = slices.Delete(*runs, i, i+1)
		return id
	case c.Run != nil:
		return c.Run.ID
	}
	return ""
}

// withdrawnBy gives the runs so far that the rewind at an offset took out of
// effect, oldest first.
func (v *view) withdrawnBy(at events.Offset) []Row {
	before, after := v.head.History.Live(at-1), v.head.History.Live(at)
	var rows []Row
	for _, row := range v.rows {
		if !row.IsMarker() && within(before, row.Offset) && !within(after, row.Offset) {
			rows = append(rows, row)
		}
	}
	return rows
}

func within(list []projector.Interval, at events.Offset) bool {
	return slices.ContainsFunc(list, func(i projector.Interval) bool { return i.From <= at && at <= i.To })
}

// mark adds a marker: a summary with little in it, and an empty content, so that
// the two lists stay side by side.
func (v *view) mark(f projector.Fact, hash, run string) {
	v.rows = append(v.rows, Row{
		Summary: RunSummary{Timestamp: happenedAt(f.Record), PromptHash: hash, Type: markerType, Run: run},
		Content: RunContent{Run: run},
		Offset:  f.Offset,
	})
}

func happenedAt(rec events.Record) time.Time {
	if rec.Time.IsZero() {
		return rec.Recorded
	}
	return rec.Time
}

// annotate adds what persons said of a run, and that it is withdrawn.
func (v *view) annotate(row *Row) {
	run := v.head.Ledger.Run(events.RunRef{Kind: runKind, ID: row.Summary.Run})
	if row.IsMarker() || run == nil {
		return
	}
	sum := &row.Summary
	if said := v.said[run.ID]; said != nil {
		for _, s := range []struct{ to, from *string }{{&sum.Note, said.Note}, {&sum.Selected, said.Selected}, {&sum.Rating, said.Rating}} {
			if s.from != nil {
				*s.to = *s.from
			}
		}
		if said.AppliedFiles != nil {
			sum.AppliedFiles = said.AppliedFiles
		}
	}
	for _, tag := range run.Tags {
		if model, ok := strings.CutPrefix(tag, ratedTag); ok && sum.Rating == "bad" {
			row.rated = model
		}
	}
	if row.Withdrawn = v.head.Withdrawn(run.At); row.Withdrawn {
		sum.Note = rewoundNote(sum.Note)
	}
}

// pairImported finds the runs that the markers of imported files mean. Such a
// marker names no run, only a prompt: as in the original, the newest run of that
// prompt before it is the one that was rewound.
func (v *view) pairImported() {
	for i := range v.rows {
		row := &v.rows[i]
		row.Rewound = row.Withdrawn
		if !row.Imported {
			continue
		}
		for j := i - 1; j >= 0; j-- {
			if run := &v.rows[j]; !run.IsMarker() && !run.Rewound && run.Summary.PromptHash == row.Summary.PromptHash {
				run.Rewound, row.Summary.Run = true, run.Summary.Run
				break
			}
		}
	}
}

// rewoundNote is the note of a run that is withdrawn.
func rewoundNote(note string) string {
	if note == "" {
		return "[rewound]"
	}
	return "[rewound] " + note
}

// Runs gives the runs of the session and the markers of its rewinds, oldest
// first.
func (s *Session) Runs(ctx context.Context) ([]Row, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	return v.rows, nil
}

// RunsAt gives them as they were when the session was as it was loaded.
func (s *Session) RunsAt(ctx context.Context, loaded *projector.Session) ([]Row, error) {
	v, err := s.viewAt(ctx, loaded)
	if err != nil {
		return nil, err
	}
	return v.rows, nil
}

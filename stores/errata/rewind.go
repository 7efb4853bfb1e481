package errata

import (
	"context"
	"fmt"
	"io/fs"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
)

// RewindResult is the result of Rewind, or of its undo or redo.
type RewindResult struct {
	FileMsg   string // the first problem with files, or ""
	FeedIndex int    // of the entry, as the caller set it; -1 without an entry
	Note      string // note of the withdrawn run: [rewound] and its previous note

	Run   string // id of that run, "" if none was withdrawn
	Files []FileChange
	Ack   log.Ack
}

// StackMove is a planned move of the head, with files. Its There is always false, because it changes the rewind stack
// even if no turn leaves.
type StackMove struct {
	tally.Move
	Entries []RewindEntry // entries that the move removes from the rewind stack, oldest first
	Files   []FileChange  // planned changes; nothing is kept or stored yet

	plan *stackPlan
}

// stackPlan is a decided move.
type stackPlan struct {
	event   *events.SessionRewound
	entries []*events.CheckpointSaved // oldest first
	goals   []fileGoal
}

// Rewind undoes the newest run on the rewind stack. It restores the run's files in the working tree, and then the
// histories. The run and its cost stay in the log. If files cannot be restored, the rewind goes on. An interrupted
// call can be repeated. If the stack is empty, the error is ErrNothingToRewind.
func (s *Session) Rewind(ctx context.Context, w WorkTree) (RewindResult, error) {
	return s.RewindSteps(ctx, w, 1)
}

// RewindSteps undoes the n newest runs of the rewind stack with one event. If the stack has fewer, it does nothing
// and returns ErrNothingToRewind.
func (s *Session) RewindSteps(ctx context.Context, w WorkTree, n int) (RewindResult, error) {
	return s.perform(ctx, w, s.steps(n))
}

// PlanRewindSteps returns the move that RewindSteps would make.
func (s *Session) PlanRewindSteps(ctx context.Context, w WorkTree, n int) (*StackMove, error) {
	return s.look(ctx, w, s.steps(n))
}

// UndoRewind undoes the newest rewind and restores the files that it replaced. If there is no rewind to undo, the
// error is projector.ErrNothingToUndo.
func (s *Session) UndoRewind(ctx context.Context, w WorkTree) (RewindResult, error) {
	return s.perform(ctx, w, s.back((*projector.Outline).Undo))
}

// PlanUndoRewind returns the move that UndoRewind would make.
func (s *Session) PlanUndoRewind(ctx context.Context, w WorkTree) (*StackMove, error) {
	return s.look(ctx, w, s.back((*projector.Outline).Undo))
}

// RedoRewind undoes the newest undo, with the files. If there is no undo, or a rewind after it, the error is
// projector.ErrNothingToRedo.
func (s *Session) RedoRewind(ctx context.Context, w WorkTree) (RewindResult, error) {
	return s.perform(ctx, w, s.back((*projector.Outline).Redo))
}

// PlanRedoRewind returns the move that RedoRewind would make.
func (s *Session) PlanRedoRewind(ctx context.Context, w WorkTree) (*StackMove, error) {
	return s.look(ctx, w, s.back((*projector.Outline).Redo))
}

type planner func(context.Context, *projector.Outline) (*stackPlan, error)

// steps plans a rewind of the n newest entries.
func (s *Session) steps(n int) planner {
	return func(ctx context.Context, head *projector.Outline) (*stackPlan, error) {
		stack := head.Ledger().Stack
		if n < 1 {
			return nil, &events.InvalidError{Field: "steps", Reason: fmt.Sprintf("%d: want 1 or more", n)}
		}
		if n > len(stack) {
			if len(stack) > 0 {
				return nil, fmt.Errorf("%w: %d steps, the stack has %d", ErrNothingToRewind, n, len(stack))
			}
			return nil, ErrNothingToRewind
		}
		used := stack[len(stack)-n:]
		to, err := head.At(ctx, used[0].At)
		if err != nil {
			return nil, err
		}
		p := &stackPlan{event: &events.SessionRewound{To: to, Checkpoint: used[0].ID, Reason: "rewind"}}
		p.entries, err = s.entries(ctx, head.Ledger(), used)
		p.goals = goalsOf(p.entries)
		return p, err
	}
}

// back plans to undo a move, with the files that it replaced.
func (s *Session) back(decide func(*projector.Outline, context.Context) (*events.SessionRewound, error)) planner {
	return func(ctx context.Context, head *projector.Outline) (*stackPlan, error) {
		event, err := decide(head, ctx)
		if err != nil {
			return nil, err
		}
		undone, err := s.rewoundAt(ctx, event.Undoes)
		if err != nil {
			return nil, err
		}
		left, err := s.left(ctx, head.Ledger(), event.Undoes, undone)
		if err != nil {
			return nil, err
		}
		p := &stackPlan{event: event}
		for _, f := range undone.Files {
			if f.Action != "failed" {
				p.goals = append(p.goals, fileGoal{path: f.Path, blob: f.Before, mode: fs.FileMode(f.Mode), expect: left[f.Path]})
			}
		}
		return p, nil
	}
}

func (s *Session) rewoundAt(ctx context.Context, at events.Offset) (*events.SessionRewound, error) {
	rec, err := s.record(ctx, at)
	if err != nil {
		return nil, err
	}
	return events.DecodeAs[events.SessionRewound](rec.Event)
}

// left returns the hashes of the files after a move, to detect later changes.
func (s *Session) left(ctx context.Context, l *projector.Ledger, at events.Offset, p *events.SessionRewound) (map[string]string, error) {
	hashes := make(map[string]string)
	if p.Undoes != 0 {
		undone, err := s.rewoundAt(ctx, p.Undoes)
		if err != nil {
			return nil, err
		}
		for _, f := range undone.Files {
			hashes[f.Path] = hashOfRef(s.Store(), f.Before)
		}
		return hashes, nil
	}
	for _, r := range l.Rewinds {
		if r.Offset != at {
			continue
		}
		entries, err := s.entries(ctx, l, panel.UsedUp(l, r))
		if err != nil {
			return nil, err
		}
		for _, g := range goalsOf(entries) {
			hashes[g.path] = hashOfRef(s.Store(), g.blob)
		}
	}
	return hashes, nil
}

// hashOfRef returns the hash of the content of a reference, "" if the reference does not contain it.
func hashOfRef(st *tally.Store, ref events.DocRef) string {
	if ref == events.Absent {
		return absentHash
	}
	if doc, _, err := ref.Parse(st.Namespace()); err == nil && doc.Kind == events.KindBlob {
		return doc.ID
	}
	return ""
}

// look returns the move of a plan without making it.
func (s *Session) look(ctx context.Context, w WorkTree, plan planner) (*StackMove, error) {
	head, err := s.peek(ctx)
	if err != nil {
		return nil, err
	}
	p, err := plan(ctx, head)
	if err != nil {
		return nil, err
	}
	target, err := head.Back(ctx, p.event.To)
	if err != nil {
		return nil, err
	}
	m := &StackMove{Move: tally.Move{Event: p.event, Basis: head.Offset()}, plan: p}
	m.Leaves, m.Returns = projector.Changes(&head.Past, target)
	m.Entries = listed(p.entries)
	t := w.open()
	defer t.close()
	for _, g := range p.goals {
		change, _, _ := look(ctx, s.Store(), t, g)
		m.Files = append(m.Files, change)
	}
	return m, nil
}

// MoveStack makes a planned move. If histories or the rewind stack changed since, it touches no file, appends
// nothing, and returns an error that matches log.ErrConflict.
func (s *Session) MoveStack(ctx context.Context, w WorkTree, m *StackMove) (RewindResult, error) {
	if err := s.stillAt(ctx, m.Basis); err != nil {
		return RewindResult{}, err
	}
	result := s.restore(ctx, w, m.plan, make(map[string]FileChange))
	ack, err := s.Append(ctx, log.Since(m.Basis, stackTypes()...), m.plan.event)
	return s.moved(ctx, m.plan, result, ack, err)
}

// stillAt returns a conflict if histories or the rewind stack changed after an offset.
func (s *Session) stillAt(ctx context.Context, basis events.Offset) error {
	types := stackTypes()
	for rec, err := range s.Store().Log.Read(ctx, events.Range{Subject: s.Subject(), After: basis}) {
		if err != nil {
			return err
		}
		if slices.Contains(types, rec.Type) {
			return &log.ConflictError{Subject: s.Subject(), Want: basis, Have: rec.Offset}
		}
	}
	return nil
}

// perform decides on a move and makes it, again if histories or stack changed meanwhile. It restores the files and
// syncs them, and then appends the event. A crash between the two leaves the entry on the stack and the files
// restored: the next call finds them restored and goes on.
func (s *Session) perform(ctx context.Context, w WorkTree, plan planner) (RewindResult, error) {
	first := make(map[string]FileChange) // state of the files before the first attempt
	var result RewindResult
	var p *stackPlan
	ack, err := s.Update(ctx, stackTypes(), func(now *projector.Outline) ([]events.Payload, error) {
		result = RewindResult{}
		var err error
		if p, err = plan(ctx, now); err != nil {
			return nil, err
		}
		result = s.restore(ctx, w, p, first)
		return []events.Payload{p.event}, nil
	})
	return s.moved(ctx, p, result, ack, err)
}

// restore brings the files of a move to their target states, and records in the event their states before.
func (s *Session) restore(ctx context.Context, w WorkTree, p *stackPlan, first map[string]FileChange) RewindResult {
	result := RewindResult{FeedIndex: -1}
	t := w.open()
	defer t.close()
	t.sweep(p.goals)
	for _, g := range p.goals {
		change := restore(ctx, s.Store(), t, g)
		if had, again := first[change.Path]; again && had.Err == nil && change.Err == nil {
			change.Before, change.Mode, change.Changed, change.Kept = had.Before, had.Mode, had.Changed, had.Kept
		}
		first[change.Path] = change
		result.Files = append(result.Files, change)
	}
	t.sync(result.Files) // before the event, which reports them as restored
	p.event.Files = recorded(result.Files)
	return result
}

// moved returns the result of a move. Its event is durable and visible to all readers.
func (s *Session) moved(ctx context.Context, p *stackPlan, result RewindResult, ack log.Ack, err error) (RewindResult, error) {
	if err != nil {
		return result, err
	}
	result.Ack = ack
	result.FileMsg = fileMessage(result.Files)
	if len(p.entries) > 0 {
		result.FeedIndex = entryOf(p.entries[0]).FeedIndex
	}
	return result, s.noteOf(ctx, &result)
}

// noteOf adds the withdrawn run to the result, the oldest one if there are several.
func (s *Session) noteOf(ctx context.Context, result *RewindResult) error {
	v, err := s.view(ctx)
	if err != nil {
		return err
	}
	for _, row := range v.rows {
		if row.Offset == result.Ack.Last && row.IsMarker() {
			result.Run = row.Summary.Run
		}
	}
	for _, row := range v.rows {
		if result.Run != "" && !row.IsMarker() && row.Summary.Run == result.Run {
			result.Note = row.Summary.Note
		}
	}
	return nil
}

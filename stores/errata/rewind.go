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

// RewindResult is what Rewind, or an undo or redo of it, did.
type RewindResult struct {
	FileMsg   string // what went wrong with files, or ""
	FeedIndex int    // of the entry, as it was given; -1 if there is none
	Note      string // of the run that was withdrawn: [rewound] and what it was before

	Run   string // id of that run, "" if none was withdrawn
	Files []FileChange
	Ack   log.Ack
}

// StackMove is a move of the head together with files, looked at before it is
// made. It is never There: also where no turn leaves, it takes entries from the stack
// or brings them back.
type StackMove struct {
	tally.Move
	Entries []RewindEntry // that the move takes from the rewind stack, oldest first
	Files   []FileChange  // what would be done; nothing is kept or stored yet

	plan *stackPlan
}

// stackPlan is a move that is decided on.
type stackPlan struct {
	head    *projector.Session
	event   *events.SessionRewound
	entries []*events.CheckpointSaved // oldest first
	goals   []fileGoal
}

// Rewind undoes the newest run on the rewind stack: first its files are restored
// in the working tree, then the histories are again as they were before it. The
// run and its cost stay on record. Files that cannot be restored do not stop it.
// An interrupted call can be repeated. An empty stack is ErrNothingToRewind.
func (s *Session) Rewind(ctx context.Context, w WorkTree) (RewindResult, error) {
	return s.RewindSteps(ctx, w, 1)
}

// RewindSteps undoes the n newest runs of the rewind stack with one event. A stack
// that is not so deep is ErrNothingToRewind, and nothing is done.
func (s *Session) RewindSteps(ctx context.Context, w WorkTree, n int) (RewindResult, error) {
	return s.perform(ctx, w, s.steps(n))
}

// PlanRewindSteps says what RewindSteps would do.
func (s *Session) PlanRewindSteps(ctx context.Context, w WorkTree, n int) (*StackMove, error) {
	return s.look(ctx, w, s.steps(n))
}

// UndoRewind takes back the newest rewind and brings back the files as it found
// them. There being none is projector.ErrNothingToUndo.
func (s *Session) UndoRewind(ctx context.Context, w WorkTree) (RewindResult, error) {
	return s.perform(ctx, w, s.back((*projector.Session).Undo))
}

// PlanUndoRewind says what UndoRewind would do.
func (s *Session) PlanUndoRewind(ctx context.Context, w WorkTree) (*StackMove, error) {
	return s.look(ctx, w, s.back((*projector.Session).Undo))
}

// RedoRewind takes back the newest undo, with the files. There being none, or a
// rewind after it, is projector.ErrNothingToRedo.
func (s *Session) RedoRewind(ctx context.Context, w WorkTree) (RewindResult, error) {
	return s.perform(ctx, w, s.back((*projector.Session).Redo))
}

// PlanRedoRewind says what RedoRewind would do.
func (s *Session) PlanRedoRewind(ctx context.Context, w WorkTree) (*StackMove, error) {
	return s.look(ctx, w, s.back((*projector.Session).Redo))
}

type planner func(context.Context, *projector.Session) (*stackPlan, error)

// steps plans a rewind of the n newest entries.
func (s *Session) steps(n int) planner {
	return func(ctx context.Context, head *projector.Session) (*stackPlan, error) {
		stack := head.Ledger.Stack
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
		p := &stackPlan{head: head, event: &events.SessionRewound{To: head.History.At(used[0].At), Checkpoint: used[0].ID, Reason: "rewind"}}
		var err error
		p.entries, err = s.entries(ctx, head.Ledger, used)
		p.goals = goals(p.entries)
		return p, err
	}
}

// back plans to take back a move, and brings back the files that it found.
func (s *Session) back(decide func(*projector.Session) (*events.SessionRewound, error)) planner {
	return func(ctx context.Context, head *projector.Session) (*stackPlan, error) {
		event, err := decide(head)
		if err != nil {
			return nil, err
		}
		undone, err := s.rewoundAt(ctx, event.Undoes)
		if err != nil {
			return nil, err
		}
		left, err := s.left(ctx, head, event.Undoes, undone)
		if err != nil {
			return nil, err
		}
		p := &stackPlan{head: head, event: event}
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

// left gives the hashes of the files as a move left them, so that later changes
// can be told.
func (s *Session) left(ctx context.Context, head *projector.Session, at events.Offset, p *events.SessionRewound) (map[string]string, error) {
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
	for _, r := range head.Ledger.Rewinds {
		if r.Offset != at {
			continue
		}
		entries, err := s.entries(ctx, head.Ledger, panel.UsedUp(head.Ledger, r))
		if err != nil {
			return nil, err
		}
		for _, g := range goals(entries) {
			hashes[g.path] = hashOfRef(s.Store(), g.blob)
		}
	}
	return hashes, nil
}

// hashOfRef gives the hash of the content that a reference names, "" if it does
// not say.
func hashOfRef(st *tally.Store, ref events.DocRef) string {
	if ref == events.Absent {
		return absentHash
	}
	if doc, _, err := ref.Parse(st.Namespace()); err == nil && doc.Kind == events.KindBlob {
		return doc.ID
	}
	return ""
}

// look says what a move would do.
func (s *Session) look(ctx context.Context, w WorkTree, plan planner) (*StackMove, error) {
	head, err := s.head(ctx)
	if err != nil {
		return nil, err
	}
	p, err := plan(ctx, head)
	if err != nil {
		return nil, err
	}
	target, err := s.Load(ctx, p.event.To.String())
	if err != nil {
		return nil, err
	}
	m := &StackMove{Move: tally.Move{Event: p.event, Seen: head.Offset()}, plan: p}
	m.Leaves, m.Returns = projector.Changes(head.Threads, target.Threads)
	m.Entries = listed(p.entries)
	t := w.open()
	defer t.close()
	for _, g := range p.goals {
		change, _, _ := look(ctx, s.Store(), t, g)
		m.Files = append(m.Files, change)
	}
	return m, nil
}

// MoveStack makes a move that was looked at. If histories or rewind stack changed
// since, no file is touched, nothing is appended, and the error matches
// log.ErrConflict.
func (s *Session) MoveStack(ctx context.Context, w WorkTree, m *StackMove) (RewindResult, error) {
	if err := s.stillAt(ctx, m.Seen); err != nil {
		return RewindResult{}, err
	}
	result := s.restore(ctx, w, m.plan, make(map[string]FileChange))
	ack, err := s.Append(ctx, log.Since(m.Seen, stackTypes()...), m.plan.event)
	return s.moved(ctx, m.plan, result, ack, err)
}

// stillAt refuses if histories or rewind stack changed after an offset.
func (s *Session) stillAt(ctx context.Context, seen events.Offset) error {
	types := stackTypes()
	for rec, err := range s.Store().Log.Read(ctx, events.Range{Subject: s.Subject(), After: seen}) {
		if err != nil {
			return err
		}
		if slices.Contains(types, rec.Type) {
			return &log.ConflictError{Subject: s.Subject(), Want: seen, Have: rec.Offset}
		}
	}
	return nil
}

// perform decides on a move and makes it, again if somebody changed histories or
// stack meanwhile. First the files are restored and durable, then the event is appended. A crash in
// between leaves the entry on the stack and the files restored: the next call finds
// nothing to do for them and goes on.
func (s *Session) perform(ctx context.Context, w WorkTree, plan planner) (RewindResult, error) {
	first := make(map[string]FileChange) // what the first attempt found
	var result RewindResult
	var p *stackPlan
	ack, err := s.Update(ctx, stackTypes(), func(now *projector.Outline) ([]events.Payload, error) {
		result = RewindResult{}
		head, err := now.Session(ctx)
		if err != nil {
			return nil, err
		}
		if p, err = plan(ctx, head); err != nil {
			return nil, err
		}
		result = s.restore(ctx, w, p, first)
		return []events.Payload{p.event}, nil
	})
	return s.moved(ctx, p, result, ack, err)
}

// restore brings the files of a move to what they shall be, and notes in its event how it
// found them.
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
	t.sync(result.Files) // the event says that they are restored
	p.event.Files = recorded(result.Files)
	return result
}

// moved says what a move did. Its event is durable: everybody sees it.
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

// noteOf adds the run that a rewind withdrew, of several the oldest.
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

package errata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
)

// ErrNothingToRewind reports that the rewind stack is empty, or has too few entries.
var ErrNothingToRewind = errors.New("nothing to rewind")

// RewindEntry has the data to undo one run.
type RewindEntry struct {
	ID             string         // default: a new one
	At             events.Offset  // target of the rewind: Appended.At; default: the last offset with HistoryLengths
	Run            string         // id of the run; default: unknown
	Prompt         string         // of the run
	HistoryLengths map[string]int // before the run
	FeedIndex      int            // of the caller's own display, -1 for none; a rewind returns it unchanged
	FileSnapshots  []FileSnapshot // nil: no writes were applied
}

// PushRewindEntry puts an entry on the rewind stack and returns its id.
func (s *Session) PushRewindEntry(ctx context.Context, entry RewindEntry) (string, error) {
	if err := s.ensure(ctx); err != nil {
		return "", err
	}
	now, err := s.peek(ctx)
	if err != nil {
		return "", err
	}
	at, err := s.entryPoint(ctx, now, entry)
	if err != nil {
		return "", err
	}
	if entry.ID == "" {
		entry.ID = s.Store().Log.NewID()
	}
	index := int64(entry.FeedIndex)
	p := &events.CheckpointSaved{ID: entry.ID, Kind: events.CheckpointRewind, At: at, Prompt: entry.Prompt, FeedIndex: &index, Lengths: entry.HistoryLengths}
	if entry.Run != "" {
		p.Run = &events.RunRef{Kind: panel.Kind, ID: entry.Run}
	}
	if err := attach(ctx, s.Store(), p, entry.FileSnapshots); err != nil {
		return "", err
	}
	_, err = s.Append(ctx, log.Any, p)
	return entry.ID, err
}

// entryPoint returns the target offset of an entry: before the first event of its run, and not before the session's
// first event.
func (s *Session) entryPoint(ctx context.Context, now *projector.Outline, entry RewindEntry) (at events.Offset, err error) {
	if at = entry.At; at == 0 {
		if at, err = beforeLengths(ctx, now, entry.HistoryLengths); err != nil {
			return 0, err
		}
	}
	if entry.Run != "" {
		ref := events.RunRef{Kind: panel.Kind, ID: entry.Run}
		if run := now.Ledger().Run(ref); run != nil {
			at = min(at, run.At-1)
		}
		cost, err := s.firstCost(ctx, now.Ledger(), ref, at)
		if err != nil {
			return 0, err
		}
		at = min(at, cost-1)
	}
	at, err = now.At(ctx, at)
	if err != nil {
		return 0, err
	}
	if at == 0 {
		return 0, &events.InvalidError{Field: "at", Reason: "the session has no event to go back to"}
	}
	return at, nil
}

// firstCost returns the offset of the first cost of a run up to an offset, else the next offset. Costs before the end
// of another run do not belong to it.
func (s *Session) firstCost(ctx context.Context, l *projector.Ledger, ref events.RunRef, at events.Offset) (events.Offset, error) {
	after := l.Created
	over := func(end events.Offset) {
		if end <= at {
			after = max(after, end)
		}
	}
	for _, r := range l.Runs {
		for _, result := range r.Results {
			if r.Ref() != ref {
				over(result.Offset)
			}
		}
	}
	for _, r := range l.Rewinds {
		over(r.Offset)
	}
	if after >= at {
		return at + 1, nil
	}
	for f, err := range s.facts(ctx, s.Store().Log.Read(ctx, events.Range{Subject: s.Subject(), After: after, Upto: at})) {
		if err != nil {
			return 0, err
		}
		if c, ok := f.Payload.(*events.CostAccrued); ok && c.Run != nil && *c.Run == ref {
			return f.Offset, nil
		}
	}
	return at + 1, nil
}

// beforeLengths returns the last offset before the first turn that a truncation to lengths would remove; the head if
// it would remove none.
func beforeLengths(ctx context.Context, now *projector.Outline, lengths map[string]int) (events.Offset, error) {
	first := now.Offset() + 1
	for name, n := range lengths {
		turns, err := now.Turns(ctx, name, max(n, 0), now.Len(name))
		if err != nil {
			return 0, err
		}
		for _, t := range turns {
			first = min(first, t.Offset)
		}
	}
	return first - 1, nil
}

// entryExtra has the data of a rewind checkpoint that its event type has no member for.
type entryExtra struct {
	Written map[string]string `json:"written,omitempty"` // path -> hash of the content that the run wrote
}

// attach stores file snapshots and adds their references to a checkpoint.
func attach(ctx context.Context, st *tally.Store, p *events.CheckpointSaved, snaps []FileSnapshot) error {
	extra := entryExtra{Written: make(map[string]string)}
	p.Files, p.Raw = nil, nil
	for _, snap := range snaps {
		f := events.SavedFile{Path: snap.Path, Blob: events.Absent, Mode: int64(snap.Mode.Perm())}
		if !snap.DidNotExist {
			ref, err := putFile(ctx, st, snap.Content)
			if err != nil {
				return err
			}
			f.Blob = ref
		}
		if snap.writtenByRun != "" {
			extra.Written[snap.Path] = snap.writtenByRun
		}
		p.Files = append(p.Files, f)
	}
	if len(extra.Written) > 0 {
		p.Raw = panel.JSON(extra)
	}
	return nil
}

// PushFileSnapshots adds the files before the run to the newest entry of the stack. Call it after the run's writes
// were applied: it records the current files as the run's result, so that a rewind can detect later changes. Without
// an entry, or if snaps is nil, it does nothing.
func (s *Session) PushFileSnapshots(ctx context.Context, w WorkTree, snaps []FileSnapshot) error {
	if snaps == nil {
		return nil
	}
	now, err := s.peek(ctx)
	if err != nil || len(now.Ledger().Stack) == 0 {
		return err
	}
	stack := now.Ledger().Stack
	newest, err := s.entries(ctx, now.Ledger(), stack[len(stack)-1:])
	if err != nil {
		return err
	}
	p := newest[0]
	if snaps, err = w.leftByRun(snaps); err != nil {
		return err
	}
	if err := attach(ctx, s.Store(), p, snaps); err != nil {
		return err
	}
	_, err = s.Append(ctx, log.Any, p)
	return err
}

// leftByRun adds the current files to snapshots. Without a tree they are unknown.
func (w WorkTree) leftByRun(snaps []FileSnapshot) ([]FileSnapshot, error) {
	t := w.open()
	defer t.close()
	if errors.Is(t.err, errNoTree) {
		return snaps, nil
	}
	if t.err != nil {
		return nil, t.err
	}
	snaps = slices.Clone(snaps)
	for i := range snaps {
		name, err := t.name(snaps[i].Path)
		if err != nil {
			return nil, err
		}
		snaps[i].Path = name
		if now, err := t.read(name); err == nil {
			snaps[i].writtenByRun = now.hash()
		}
	}
	return snaps, nil
}

// entries reads the newest versions of rewind checkpoints.
func (s *Session) entries(ctx context.Context, l *projector.Ledger, stack []projector.StackEntry) ([]*events.CheckpointSaved, error) {
	var list []*events.CheckpointSaved
	for _, e := range stack {
		c := l.Checkpoint(events.CheckpointRewind, e.ID)
		rec, err := s.record(ctx, panel.Newest(c))
		if err != nil {
			return nil, err
		}
		p, err := events.DecodeAs[events.CheckpointSaved](rec.Event)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// record reads a record with its data.
func (s *Session) record(ctx context.Context, at events.Offset) (events.Record, error) {
	rec, err := s.Store().Log.Record(ctx, at)
	if err != nil {
		return rec, err
	}
	return s.Store().Loader().Whole(ctx, rec)
}

// CanRewind reports whether the rewind stack has an entry.
func (s *Session) CanRewind(ctx context.Context) (bool, error) {
	n, err := s.RewindStackLen(ctx)
	return n > 0, err
}

// RewindStackLen returns the number of entries on the rewind stack.
func (s *Session) RewindStackLen(ctx context.Context) (int, error) {
	now, err := s.peek(ctx)
	if err != nil {
		return 0, err
	}
	return len(now.Ledger().Stack), nil
}

// RewindStack returns the entries of the rewind stack, oldest first, without the content of their files.
func (s *Session) RewindStack(ctx context.Context) ([]RewindEntry, error) {
	now, err := s.peek(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := s.entries(ctx, now.Ledger(), now.Ledger().Stack)
	if err != nil {
		return nil, err
	}
	return listed(entries), nil
}

func listed(entries []*events.CheckpointSaved) []RewindEntry {
	var list []RewindEntry
	for _, p := range entries {
		list = append(list, entryOf(p))
	}
	return list
}

func entryOf(p *events.CheckpointSaved) RewindEntry {
	e := RewindEntry{ID: p.ID, At: p.At, Prompt: p.Prompt, HistoryLengths: p.Lengths, FeedIndex: -1}
	if p.FeedIndex != nil {
		e.FeedIndex = int(*p.FeedIndex)
	}
	if p.Run != nil {
		e.Run = p.Run.ID
	}
	for _, f := range p.Files {
		e.FileSnapshots = append(e.FileSnapshots, FileSnapshot{Path: f.Path, DidNotExist: f.Blob == events.Absent, Mode: fs.FileMode(f.Mode)})
	}
	return e
}

// ClearRewindStack empties the rewind stack. reason is recorded: clear, wipe, compact. It does nothing to an empty
// stack.
func (s *Session) ClearRewindStack(ctx context.Context, reason string) error {
	return s.change(ctx, stackTypes(), func(now *projector.Outline) ([]events.Payload, error) {
		if len(now.Ledger().Stack) == 0 {
			return nil, nil
		}
		return []events.Payload{&events.CheckpointCleared{Kind: events.CheckpointRewind, Reason: reason}}, nil
	})
}

// goalsOf returns the target states of the files if all entries are rewound; entries has the oldest first. If several
// entries have a file, the oldest snapshot counts, and the newest run is its last writer.
func goalsOf(entries []*events.CheckpointSaved) []fileGoal {
	var list []fileGoal
	for _, p := range slices.Backward(entries) {
		var extra entryExtra
		if p.Raw != nil {
			_ = json.Unmarshal(p.Raw, &extra) // an importer may store other data there
		}
		for _, f := range p.Files {
			i := slices.IndexFunc(list, func(g fileGoal) bool { return g.path == f.Path })
			if i < 0 {
				i = len(list)
				list = append(list, fileGoal{path: f.Path, expect: extra.Written[f.Path]})
			}
			list[i].blob, list[i].mode = f.Blob, fs.FileMode(f.Mode)
		}
	}
	return list
}

// fileMessage returns the first problem with files in the original's words.
func fileMessage(changes []FileChange) string {
	var kept string
	for _, c := range changes {
		if c.Err != nil {
			return fmt.Sprintf(" (file restore warning: %s: %v)", c.Path, c.Err)
		}
		if c.Changed && kept == "" {
			kept = fmt.Sprintf(" (file restore warning: %s changed since its snapshot, kept as %s)", c.Path, c.Kept)
		}
	}
	return kept
}

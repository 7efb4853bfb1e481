package errata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
)

// Appended is the result of AppendHistories.
type Appended struct {
	// Lengths has the length of each panel member's history before the append.
	Lengths map[string]int
	// At is the session's last offset before the append, to which a rewind of the run goes back.
	At events.Offset
	// Ack is zero if no response had a text to append. Late reports that the history was rewound since the panel read
	// it: the turns are stored, but are not in effect.
	Ack log.Ack
}

// peek opens the current session; a session without events is empty. It does not count as a read.
func (s *Session) peek(ctx context.Context) (*projector.Outline, error) {
	return s.Store().Loader().Peek(ctx, s.Subject())
}

// head is peek with all turns and costs.
func (s *Session) head(ctx context.Context) (*projector.Session, error) {
	o, err := s.peek(ctx)
	if err != nil {
		return nil, err
	}
	return o.Session(ctx)
}

// ensure creates a session without events, so that even its first run can be rewound.
func (s *Session) ensure(ctx context.Context) error {
	_, err := s.lastOffset(ctx)
	if !errors.Is(err, log.ErrNotFound) {
		return err
	}
	_, err = s.Create(ctx, events.SessionCreated{Kind: events.KindPanel, CreatedAt: events.TimestampOf(s.Store().Now())})
	if errors.Is(err, tally.ErrExists) {
		return nil
	}
	return err
}

// lastOffset returns the offset of the session's last record, even if it is damaged.
func (s *Session) lastOffset(ctx context.Context) (events.Offset, error) {
	rec, err := s.Store().Log.Last(ctx, s.Subject())
	if damage, ok := errors.AsType[*events.DamageError](err); ok {
		return damage.Offset, nil
	}
	return rec.Offset, err
}

// Histories returns copies of the turns in effect of every model. If a turn is not {role, content}, the error is an
// *events.InvalidError.
func (s *Session) Histories(ctx context.Context) (map[string][]Turn, error) {
	head, err := s.Load(ctx, "")
	if errors.Is(err, tally.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return historiesOf(head.Threads)
}

func historiesOf(threads projector.Threads) (map[string][]Turn, error) {
	var histories map[string][]Turn
	for _, name := range threads.Names() {
		list := []Turn{}
		for i, turn := range threads.Turns(name) {
			t, err := turnOf(turn)
			if err != nil {
				return nil, &events.InvalidError{Field: fmt.Sprintf("history %q turn %d", name, i+1), Reason: err.Error()}
			}
			list = append(list, t)
		}
		if histories == nil {
			histories = make(map[string][]Turn)
		}
		histories[name] = list
	}
	return histories, nil
}

// turnOf decodes a turn. It ignores the case of names, for the oldest files.
func turnOf(turn projector.Turn) (Turn, error) {
	var t Turn
	if turn.Raw == nil {
		return t, errors.New("not JSON")
	}
	return t, json.Unmarshal(turn.Raw, &t)
}

// AppendHistories appends a panel's answers to a prompt, as one event. For the i-th response without error and with a
// text, it appends the prompt and the text to the history of panelIDs[i]. It ignores responses beyond the panel.
func (s *Session) AppendHistories(ctx context.Context, panelIDs []string, responses []Response, prompt string) (Appended, error) {
	p := entriesOf(panelIDs, responses, prompt)
	if err := checkPanel(panelIDs); err != nil {
		return Appended{}, err
	}
	if err := s.ensure(ctx); err != nil {
		return Appended{}, err
	}
	if len(p.Entries) == 0 {
		now, err := s.peek(ctx)
		if err != nil {
			return Appended{}, err
		}
		return Appended{Lengths: lengthsOf(panelIDs, now, nil), At: now.Offset()}, nil
	}
	ack, err := s.Append(ctx, log.Any, p)
	if err != nil {
		return Appended{}, err
	}
	return s.appended(ctx, panelIDs, p, ack)
}

// appended returns the result of an append, from the session right after it.
func (s *Session) appended(ctx context.Context, panelIDs []string, p *events.TurnAppended, ack log.Ack) (Appended, error) {
	done := Appended{Ack: ack}
	after, err := s.Store().Loader().Outline(ctx, s.Subject(), ack.Last)
	if err == nil {
		done.At, err = after.Before(ctx, ack.First)
	}
	if err != nil {
		return done, fmt.Errorf("appended at %v, but not read back: %w", ack.First, err)
	}
	own := make(map[string]int)
	if !ack.Stale {
		for _, entry := range p.Entries {
			own[entry.Thread]++
		}
	}
	done.Lengths = lengthsOf(panelIDs, after, own)
	return done, nil
}

func entriesOf(panelIDs []string, responses []Response, prompt string) *events.TurnAppended {
	p := &events.TurnAppended{}
	for i, r := range responses {
		if i >= len(panelIDs) || !r.OK() || r.Text == "" {
			continue
		}
		p.Entries = append(p.Entries,
			events.Entry{Thread: panelIDs[i], Turn: panel.JSON(Turn{"user", prompt})},
			events.Entry{Thread: panelIDs[i], Turn: panel.JSON(Turn{"assistant", r.Text})})
	}
	return p
}

func checkPanel(panelIDs []string) error {
	for i, id := range panelIDs {
		if id == "" || id == events.AllThreads || len(id) > events.MaxIDLen {
			return &events.InvalidError{Field: fmt.Sprintf("panel[%d]", i), Reason: fmt.Sprintf("%q is not a model name (1 to 512 bytes)", id)}
		}
	}
	return nil
}

// lengthsOf returns the lengths of histories without the turns of one append.
func lengthsOf(panelIDs []string, now *projector.Outline, own map[string]int) map[string]int {
	lengths := make(map[string]int, len(panelIDs))
	for _, id := range panelIDs {
		lengths[id] = now.Len(id) - own[id]
	}
	return lengths
}

// SetHistories replaces all histories: a compaction. Turns that old and new histories share are not stored again. The
// rewind stack stays; see Compact. If another writer appended to histories since they were read through this handle,
// SetHistories writes nothing and returns a conflict; read them again.
func (s *Session) SetHistories(ctx context.Context, histories map[string][]Turn) error {
	return s.replace(ctx, histories)
}

// Compact is SetHistories, and clears the rewind stack in the same append.
func (s *Session) Compact(ctx context.Context, histories map[string][]Turn) error {
	return s.replace(ctx, histories, &events.CheckpointCleared{Kind: events.CheckpointRewind, Reason: "compact"})
}

func (s *Session) replace(ctx context.Context, histories map[string][]Turn, more ...events.Payload) error {
	if err := checkPanel(slices.Sorted(maps.Keys(histories))); err != nil {
		return err
	}
	if err := s.ensure(ctx); err != nil {
		return err
	}
	decide := func(now *projector.Outline) ([]events.Payload, error) {
		p := &events.ThreadReplaced{Threads: make(map[string]events.Replacement), Others: "drop", Reason: "compact"}
		for name, turns := range histories {
			have, err := now.Last(ctx, name, now.Len(name))
			if err != nil {
				return nil, err
			}
			p.Threads[name] = events.Replacement{Items: replacement(have, turns)}
		}
		return append([]events.Payload{p}, more...), nil
	}
	expect, err := s.Unchanged(ctx)
	if err != nil {
		return err
	}
	if expect == log.Any {
		return s.change(ctx, stackTypes(), decide)
	}
	now, err := s.peek(ctx)
	if err != nil {
		return err
	}
	list, err := decide(now)
	if err != nil {
		return err
	}
	_, err = s.Append(ctx, expect, list...)
	return err
}

// replacement keeps the common beginning and end of a history, and adds the new turns between them.
func replacement(have []projector.Turn, want []Turn) []events.Item {
	same := func(h projector.Turn, w Turn) bool {
		t, err := turnOf(h)
		return err == nil && t == w
	}
	head, tail := 0, 0
	for head < min(len(have), len(want)) && same(have[head], want[head]) {
		head++
	}
	for tail < min(len(have), len(want))-head && same(have[len(have)-1-tail], want[len(want)-1-tail]) {
		tail++
	}
	var items []events.Item
	if head > 0 {
		items = append(items, events.Item{Keep: &[2]int{0, head}})
	}
	for _, t := range want[head : len(want)-tail] {
		items = append(items, events.Item{Turn: panel.JSON(t)})
	}
	if tail > 0 {
		items = append(items, events.Item{Keep: &[2]int{len(have) - tail, len(have)}})
	}
	return items
}

// TruncateHistories shortens histories. A history that is not longer stays as it is, and an empty one is removed.
// Histories that lengths does not name stay.
func (s *Session) TruncateHistories(ctx context.Context, lengths map[string]int) error {
	for name, n := range lengths {
		if n < 0 {
			return &events.InvalidError{Field: fmt.Sprintf("lengths[%q]", name), Reason: fmt.Sprintf("%d is negative", n)}
		}
	}
	return s.change(ctx, stackTypes(), func(now *projector.Outline) ([]events.Payload, error) {
		p := &events.ThreadTruncated{Lengths: make(map[string]int), Reason: "truncate"}
		for name, n := range lengths {
			if slices.Contains(now.Names(), name) && (n < now.Len(name) || now.Len(name) == 0) {
				p.Lengths[name] = n
			}
		}
		if len(p.Lengths) == 0 {
			return nil, nil
		}
		return []events.Payload{p}, nil
	})
}

// ClearHistories removes all histories. Runs and the rewind stack stay; see Clear.
func (s *Session) ClearHistories(ctx context.Context) error {
	return s.Clear(ctx, KeepStack)
}

// Stack selects whether Clear drops the rewind stack.
type Stack bool

// Values of Stack.
const (
	DropStack Stack = false // as the original documents it
	KeepStack Stack = true
)

// Clear removes all histories and, unless it is kept, the rewind stack, in one append.
func (s *Session) Clear(ctx context.Context, stack Stack) error {
	return s.change(ctx, stackTypes(), func(now *projector.Outline) ([]events.Payload, error) {
		var list []events.Payload
		if len(now.Names()) > 0 {
			list = append(list, &events.ThreadTruncated{Lengths: map[string]int{events.AllThreads: 0}, Reason: "clear"})
		}
		if stack == DropStack && len(now.Ledger().Stack) > 0 {
			list = append(list, &events.CheckpointCleared{Kind: events.CheckpointRewind, Reason: "clear"})
		}
		return list, nil
	})
}

// change appends the payloads that decide returns for the current session. If an event of the types arrives before,
// it decides again.
func (s *Session) change(ctx context.Context, types []string, decide func(*projector.Outline) ([]events.Payload, error)) error {
	_, err := s.Update(ctx, types, decide)
	return err
}

// stackTypes returns the event types that change histories or the rewind stack.
func stackTypes() []string {
	return append(projector.MoveTypes(), events.TypeCheckpointSaved, events.TypeCheckpointCleared)
}

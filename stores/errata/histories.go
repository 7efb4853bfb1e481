package errata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Appended is what AppendHistories did.
type Appended struct {
	// Lengths are those of every panel member's history before the append.
	Lengths map[string]int
	// At is the session's last offset before the append: where a rewind of the run
	// goes to.
	At events.Offset
	// Ack is zero if no response had anything to append. Late says that somebody
	// rewound what the panel was answering: the turns are kept, but not in effect.
	Ack log.Ack
}

// known is how much of a session went through a handle.
type known struct {
	mu    sync.Mutex
	seen  events.Offset // the producer knows the session up to here
	base  events.Offset // the histories were read, or written without anybody between, up to here
	turns int           // in effect at base
}

// read notes that the whole session was given to the caller.
func (k *known) read(s *projector.Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.Offset() >= k.seen {
		k.seen, k.base, k.turns = s.Offset(), s.Offset(), s.History.Turns()
	}
}

// appended notes turns of the handle's own, and whether anybody else's came in
// between since the histories were read.
func (k *known) appended(s *projector.Session, own int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen = max(k.seen, s.Offset())
	if k.base > 0 && s.History.Turns()-own == k.turns {
		k.base, k.turns = s.Offset(), s.History.Turns()
	}
}

func (k *known) offsets() (seen, base events.Offset) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen, k.base
}

// head loads the session as it is now; one without events is empty.
func (s *Session) head(ctx context.Context) (*projector.Session, error) {
	head, err := s.Store().Loader().Session(ctx, s.Subject(), 0)
	if errors.Is(err, tally.ErrNotFound) {
		return projector.NewSession(s.Subject()), nil
	}
	return head, err
}

// put appends one event, with what its producer had seen. When no answer came it
// asks again: the event is the same, so it is there once.
func (s *Session) put(ctx context.Context, expect log.Expect, e events.Event) (log.Ack, error) {
	if seen, _ := s.known.offsets(); seen > 0 {
		e = e.WithExtension(events.ExtSeen, fmt.Sprintf("%020d", uint64(seen)))
	}
	ready, err := s.Store().Prepare(ctx, s.Subject(), []events.Event{e})
	if err != nil {
		return log.Ack{}, err
	}
	for attempt := 0; ; attempt++ {
		ack, err := s.Store().Log.Append(ctx, s.Subject(), expect, ready...)
		if !errors.Is(err, log.ErrUnknown) || attempt == 3 || ctx.Err() != nil {
			return ack, err
		}
	}
}

// ensure appends the first event of a session without one, so that there is a point to
// which even its first run can be rewound.
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

// lastOffset returns the offset of the session's last record, also of a damaged one.
func (s *Session) lastOffset(ctx context.Context) (events.Offset, error) {
	rec, err := s.Store().Log.Last(ctx, s.Subject())
	if damage, ok := errors.AsType[*events.DamageError](err); ok {
		return damage.Offset, nil
	}
	return rec.Offset, err
}

// Histories returns the turns in effect of every model. They are the caller's own.
// A turn that is no {role, content} is an *events.InvalidError.
func (s *Session) Histories(ctx context.Context) (map[string][]Turn, error) {
	head, err := s.head(ctx)
	if err != nil {
		return nil, err
	}
	histories, err := historiesOf(head.Threads)
	if err == nil {
		s.known.read(head)
	}
	return histories, err
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

// turnOf reads a turn. Names match in upper and lower case, as the oldest files
// need it.
func turnOf(turn projector.Turn) (Turn, error) {
	var t Turn
	if turn.Raw == nil {
		return t, errors.New("it is no JSON")
	}
	return t, json.Unmarshal(turn.Raw, &t)
}

// AppendHistories appends, as one event, what a panel answered to a prompt: for
// the i-th response without error and with a text, the prompt and the text to the
// history of panelIDs[i]. Responses beyond the panel are ignored.
func (s *Session) AppendHistories(ctx context.Context, panelIDs []string, responses []Response, prompt string) (Appended, error) {
	p := entriesOf(panelIDs, responses, prompt)
	if err := checkPanel(panelIDs); err != nil {
		return Appended{}, err
	}
	if err := s.ensure(ctx); err != nil {
		return Appended{}, err
	}
	if len(p.Entries) == 0 {
		head, err := s.head(ctx)
		if err != nil {
			return Appended{}, err
		}
		return Appended{Lengths: lengthsOf(panelIDs, head.Threads, nil), At: head.Offset()}, nil
	}
	e, err := events.New(s.Store().Source(), s.Subject(), p)
	if err != nil {
		return Appended{}, err
	}
	ack, err := s.put(ctx, log.Any, e)
	if err != nil {
		return Appended{}, err
	}
	return s.appended(ctx, panelIDs, p, ack)
}

// appended says what an append did: the session right after it tells.
func (s *Session) appended(ctx context.Context, panelIDs []string, p *events.TurnAppended, ack log.Ack) (Appended, error) {
	after, err := s.Store().Loader().Session(ctx, s.Subject(), ack.Last)
	if err != nil {
		return Appended{Ack: ack}, fmt.Errorf("appended at %v, but not read back: %w", ack.First, err)
	}
	own := make(map[string]int)
	if ack.Late = !after.History.IsLive(ack.First); !ack.Late {
		for _, entry := range p.Entries {
			own[entry.Thread]++
		}
		s.known.appended(after, len(p.Entries))
	}
	return Appended{lengthsOf(panelIDs, after.Threads, own), after.History.Before(ack.First), ack}, nil
}

func entriesOf(panelIDs []string, responses []Response, prompt string) *events.TurnAppended {
	p := &events.TurnAppended{}
	for i, r := range responses {
		if i >= len(panelIDs) || !r.OK() || r.Text == "" {
			continue
		}
		p.Entries = append(p.Entries,
			events.Entry{Thread: panelIDs[i], Turn: Turn{"user", prompt}.raw()},
			events.Entry{Thread: panelIDs[i], Turn: Turn{"assistant", r.Text}.raw()})
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
func lengthsOf(panelIDs []string, threads projector.Threads, own map[string]int) map[string]int {
	lengths := make(map[string]int, len(panelIDs))
	for _, id := range panelIDs {
		lengths[id] = len(threads.Turns(id)) - own[id]
	}
	return lengths
}

// SetHistories replaces all histories by others: a compaction. What the new ones
// have in common with the old is not stored again. The rewind stack stays; see
// Compact. Histories that were read through this handle and to which somebody
// else appended meanwhile are a conflict: nothing is written, read them again.
func (s *Session) SetHistories(ctx context.Context, histories map[string][]Turn) error {
	return s.replace(ctx, histories)
}

// Compact is SetHistories, and with the same append the rewind stack is cleared.
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
	decide := func(head *projector.Session) ([]events.Payload, error) {
		p := &events.ThreadReplaced{Threads: make(map[string]events.Replacement), Others: "drop", Reason: "compact"}
		for name, turns := range histories {
			p.Threads[name] = events.Replacement{Items: replacement(head.Threads.Turns(name), turns)}
		}
		return append([]events.Payload{p}, more...), nil
	}
	if _, base := s.known.offsets(); base > 0 {
		return s.changeSince(ctx, base, decide)
	}
	return s.change(ctx, decide)
}

// replacement keeps what a history begins and ends with, and brings what is new.
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
		items = append(items, events.Item{Turn: t.raw()})
	}
	if tail > 0 {
		items = append(items, events.Item{Keep: &[2]int{len(have) - tail, len(have)}})
	}
	return items
}

// TruncateHistories shortens histories. One that is as short already is left as
// it is, one that ends empty is gone, and those not named stay.
func (s *Session) TruncateHistories(ctx context.Context, lengths map[string]int) error {
	for name, n := range lengths {
		if n < 0 {
			return &events.InvalidError{Field: fmt.Sprintf("lengths[%q]", name), Reason: fmt.Sprintf("%d is negative", n)}
		}
	}
	return s.change(ctx, func(head *projector.Session) ([]events.Payload, error) {
		p := &events.ThreadTruncated{Lengths: make(map[string]int), Reason: "truncate"}
		for name, n := range lengths {
			if th := head.Threads[name]; th != nil && (n < len(th.Turns) || len(th.Turns) == 0) {
				p.Lengths[name] = n
			}
		}
		if len(p.Lengths) == 0 {
			return nil, nil
		}
		return []events.Payload{p}, nil
	})
}

// ClearHistories wipes all histories. Runs, and the rewind stack, stay; see Clear.
func (s *Session) ClearHistories(ctx context.Context) error {
	return s.Clear(ctx, KeepStack)
}

// Stack says what becomes of the rewind stack when the histories go.
type Stack bool

// What becomes of the rewind stack.
const (
	DropStack Stack = false // as the original describes it
	KeepStack Stack = true
)

// Clear wipes all histories and, unless it is kept, the rewind stack, in one
// append.
func (s *Session) Clear(ctx context.Context, stack Stack) error {
	return s.change(ctx, func(head *projector.Session) ([]events.Payload, error) {
		var list []events.Payload
		if len(head.Threads) > 0 {
			list = append(list, &events.ThreadTruncated{Lengths: map[string]int{events.AllThreads: 0}, Reason: "clear"})
		}
		if stack == DropStack && len(head.Ledger.Stack) > 0 {
			list = append(list, &events.CheckpointCleared{Kind: events.CheckpointRewind, Reason: "clear"})
		}
		return list, nil
	})
}

// change makes a decision about histories or rewind stack, again if one of them
// changed before it was written.
func (s *Session) change(ctx context.Context, decide func(*projector.Session) ([]events.Payload, error)) error {
	return tally.Retry(ctx, func() error { return s.changeSince(ctx, 0, decide) }, log.ErrConflict)
}

// changeSince makes a decision on what the caller knows since an offset, 0 for
// what the session is now.
func (s *Session) changeSince(ctx context.Context, base events.Offset, decide func(*projector.Session) ([]events.Payload, error)) error {
	head, err := s.head(ctx)
	if err != nil {
		return err
	}
	list, err := decide(head)
	if err != nil || len(list) == 0 {
		return err
	}
	evs, err := s.events(list...)
	if err != nil {
		return err
	}
	expect := log.Since(head.Offset(), stackTypes()...)
	switch {
	case head.Offset() == 0:
		expect = log.At(0)
	case base > 0:
		expect = log.Since(base, projector.MoveTypes()...)
	}
	ack, err := s.Store().Append(ctx, s.Subject(), expect, evs...)
	if err != nil {
		return err
	}
	return s.reread(ctx, ack.Last)
}

// reread notes the session as it is right after a decision of the caller.
func (s *Session) reread(ctx context.Context, at events.Offset) error {
	after, err := s.Store().Loader().Session(ctx, s.Subject(), at)
	if err != nil {
		return fmt.Errorf("written at %v, but not read back: %w", at, err)
	}
	s.known.read(after)
	return nil
}

// stackTypes are the types that change histories or rewind stack.
func stackTypes() []string {
	return append(projector.MoveTypes(), events.TypeCheckpointSaved, events.TypeCheckpointCleared)
}

// events makes events of payloads.
func (s *Session) events(list ...events.Payload) ([]events.Event, error) {
	var evs []events.Event
	for _, p := range list {
		e, err := events.New(s.Store().Source(), s.Subject(), p)
		if err != nil {
			return nil, err
		}
		evs = append(evs, e)
	}
	return evs, nil
}

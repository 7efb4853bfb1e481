package perstack

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
	"github.com/tallylog/tally/stores/perstack/internal/share"
)

// moves are the types of events that change threads other than by appends.
var moves = []string{events.TypeSessionRewound, events.TypeThreadReplaced, events.TypeThreadTruncated}

// writer is a handle's knowledge of the session that it appends to.
type writer struct {
	mu       sync.Mutex
	known    bool
	loaded   int           // how often it was read from the start
	at       events.Offset // read up to here
	calm     events.Offset // at or above it; up to here no thread was moved
	messages share.Messages
	lanes    map[string]*lane         // by run
	versions map[string]events.Offset // newest offset of each checkpoint
	models   map[string]string        // run -> model of its setting
}

// lane is a run that the handle writes. Only the handle appends to its thread, so that the handle's numbers of turns
// are right.
type lane struct {
	mu      sync.Mutex // held from counting turns until they are in the log
	own     string     // thread, or ""
	claimed bool       // the thread belongs to the handle
	refused int        // how often another writer interrupted a claim
}

// maxClaims bounds how often a lane claims a thread with a short name. After that it takes a unique long name, which
// needs no claim.
const maxClaims = 3

// lane returns the lane of a run, and reads the session if necessary.
func (h *Handle) lane(ctx context.Context, run string) (*lane, error) {
	w := &h.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.known {
		if err := h.load(ctx); err != nil {
			return nil, err
		}
	}
	l := w.lanes[run]
	if l == nil {
		l = &lane{}
		w.lanes[run] = l
	}
	return l, nil
}

// load reads the session. The caller holds writer.mu.
func (h *Handle) load(ctx context.Context) error {
	o, err := h.head(ctx)
	if err != nil {
		return err
	}
	w := &h.writer
	w.messages, w.lanes = share.Messages{}, make(map[string]*lane)
	w.versions, w.models = make(map[string]events.Offset), make(map[string]string)
	for _, thread := range o.Names() {
		for from := 0; from < o.Len(thread); from += page {
			turns, err := o.Turns(ctx, thread, from, from+page)
			if err != nil {
				return err
			}
			for _, t := range turns {
				w.messages.Add(thread, t.Raw)
			}
		}
	}
	for _, c := range o.Ledger().Checkpoints {
		if c.Kind == events.CheckpointStep {
			w.versions[c.ID] = c.Saved[len(c.Saved)-1]
		}
	}
	for _, r := range o.Ledger().Runs {
		if r.Kind == shape.RunKind && len(r.Models) > 0 {
			w.models[r.ID] = r.Models[0]
		}
	}
	w.known, w.at, w.calm = true, o.Offset(), o.Offset()
	w.loaded++
	return nil
}

// page is how many turns are read at a time.
const page = 256

// catchUp reads newer records. If threads were moved, it reads everything again, and the handle takes new threads. The
// caller holds writer.mu.
func (h *Handle) catchUp(ctx context.Context) error {
	w := &h.writer
	for rec, err := range events.Readable(h.st.Log.Read(ctx, events.Range{Subject: h.session.Subject(), After: w.at})) {
		if err == nil && rec.Type == events.TypeTurnAppended {
			rec, err = projector.Resolve(ctx, h.st.Log, rec, h.st.MaxValue())
		}
		if err != nil {
			return err
		}
		if slices.Contains(moves, rec.Type) {
			return h.load(ctx)
		}
		w.learn(rec)
		w.at = rec.Offset
	}
	w.calm = max(w.calm, w.at)
	return nil
}

// learn notes a record that another writer may have appended.
func (w *writer) learn(rec events.Record) {
	switch rec.Type {
	case events.TypeTurnAppended, events.TypeCheckpointSaved, events.TypeRunCreated:
	default:
		return
	}
	switch p := projector.Decode(rec).Payload.(type) {
	case *events.TurnAppended:
		for _, e := range p.Entries {
			if !w.owns(e.Thread) {
				w.messages.Add(e.Thread, e.Turn)
			}
		}
	case *events.CheckpointSaved:
		if p.Kind == events.CheckpointStep {
			w.versions[p.ID] = max(w.versions[p.ID], rec.Offset)
		}
	case *events.RunCreated:
		if p.Run.Kind == shape.RunKind && len(p.Models) > 0 && w.models[p.Run.ID] == "" {
			w.models[p.Run.ID] = p.Models[0]
		}
	}
}

func (w *writer) owns(thread string) bool {
	for _, l := range w.lanes {
		if l.claimed && (thread == l.own || thread == share.ResultsOf(l.own)) {
			return true
		}
	}
	return false
}

// claim chooses a free thread for a lane. The caller holds lane.mu.
func (h *Handle) claim(ctx context.Context, l *lane, run string) error {
	w := &h.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.refused == maxClaims {
		l.own, l.claimed = shape.RunThread(run, 1)+"/"+h.st.Log.NewID(), true
		return nil
	}
	if err := h.catchUp(ctx); err != nil {
		return err
	}
	w.choose(l, run)
	return nil
}

// choose selects a thread that no known writer has. The caller holds writer.mu.
func (w *writer) choose(l *lane, run string) {
	for n := 1; ; n++ {
		l.own = shape.RunThread(run, n)
		if w.messages.Len(l.own) == 0 && w.messages.Len(share.ResultsOf(l.own)) == 0 && !w.owns(l.own) {
			return
		}
	}
}

// A step is an event of a save, with its condition.
type step struct {
	expect  log.Expect
	payload events.Payload
	id      string // "": any
	source  string // "": the store's
	event   events.Event
	calm    bool // requires that no thread was moved
}

// A saving is a value to save.
type saving struct {
	run   string
	raw   events.Raw
	steps func(w *writer, raw events.Raw, lists events.Lists) []step // the value without its lists, then the events that follow from it
}

// save appends a value of a run, after the messages that the session lacks. Only the last event waits for the disk, so
// a save costs one sync. After a crash in between, the session has messages without a value, which the next save uses.
// save returns the ack of the value.
func (h *Handle) save(ctx context.Context, s saving) (ack log.Ack, err error) {
	err = h.again(ctx, func() error {
		ack, err = h.saveOnce(ctx, s)
		if errors.Is(err, log.ErrConflict) {
			if known := h.refresh(ctx); known != nil {
				return known
			}
		}
		return err
	})
	return ack, err
}

// refresh catches up after a conflict.
func (h *Handle) refresh(ctx context.Context) error {
	h.writer.mu.Lock()
	defer h.writer.mu.Unlock()
	return h.catchUp(ctx)
}

func (h *Handle) saveOnce(ctx context.Context, s saving) (log.Ack, error) {
	l, err := h.locked(ctx, s.run)
	if err != nil {
		return log.Ack{}, err
	}
	p, err := h.plan(ctx, l, s)
	switch {
	case err != nil:
		l.mu.Unlock()
		return log.Ack{}, err
	case p.brings == nil: // the following events need not wait for it
		sent := h.send(ctx, p.steps)
		l.mu.Unlock()
		return h.acks(ctx, p.steps, sent)
	}
	defer l.mu.Unlock()
	// Turns must be stored before events that count them are sent: if another writer's append fails before them, both
	// may be refused, or only the turns.
	bring, rest := p.steps[:1], p.steps[1:]
	if _, _, err := h.answers(ctx, bring, []*tally.Pending{h.unshown.Log.AppendAsyncBuffered(ctx, h.session.Subject(), bring[0].expect, bring[0].event)}); err != nil {
		switch {
		case !l.claimed:
			l.refused++
		case !errors.Is(err, log.ErrConflict):
			h.forget() // the turns may be stored or not
		}
		return log.Ack{}, err
	}
	h.brought(l, p)
	return h.acks(ctx, rest, h.send(ctx, rest))
}

// locked returns the lane of a run, with its mutex held.
func (h *Handle) locked(ctx context.Context, run string) (*lane, error) {
	for {
		l, err := h.lane(ctx, run)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		if h.writer.has(run, l) {
			return l, nil
		}
		l.mu.Unlock() // the session was read again meanwhile
	}
}

// has reports whether a lane still belongs to a run.
func (w *writer) has(run string, l *lane) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known && w.lanes[run] == l
}

// brought notes turns that are in the log now. The caller holds lane.mu.
func (h *Handle) brought(l *lane, p plan) {
	w := &h.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loaded != p.loaded || w.lanes[p.run] != l {
		w.known = false // the last read may include some of them
		return
	}
	learned := !l.claimed && w.messages.Len(l.own)+w.messages.Len(share.ResultsOf(l.own)) > 0
	if l.claimed = true; learned {
		return // another run's save read them already
	}
	for _, e := range p.brings {
		w.messages.Add(e.Thread, e.Turn)
	}
}

// forget makes the next save read the session again.
func (h *Handle) forget() {
	h.writer.mu.Lock()
	defer h.writer.mu.Unlock()
	h.writer.known = false
}

// plan is the events that a save appends.
type plan struct {
	run    string
	steps  []step
	brings []events.Entry // turns in the first step; nil: none are new
	loaded int            // number of the session's read that it is based on
}

// plan returns the events that a save appends. The caller holds lane.mu.
func (h *Handle) plan(ctx context.Context, l *lane, s saving) (p plan, err error) {
	p, err = h.writer.plan(l, s)
	if err == nil && !l.claimed && p.brings != nil { // only new turns need a thread
		if err = h.claim(ctx, l, s.run); err == nil {
			p, err = h.writer.plan(l, s)
		}
	}
	if err != nil {
		return p, err
	}
	for i := range p.steps {
		if err := h.ready(ctx, &p.steps[i]); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (w *writer) plan(l *lane, s saving) (p plan, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.own == "" {
		w.choose(l, s.run)
	}
	parts, err := w.messages.Split(l.own, s.raw)
	if err != nil {
		return p, err
	}
	p.run, p.brings, p.loaded = s.run, parts.New, w.loaded
	rest := log.Any
	if len(parts.Lists) > 0 {
		rest = log.Since(w.calm, moves...)
	}
	if len(parts.New) > 0 {
		first := rest
		if !l.claimed {
			first = log.Since(w.at, append([]string{events.TypeTurnAppended}, moves...)...)
		}
		run := shape.RunRef(s.run)
		for i := range parts.New {
			parts.New[i].Run = &run
		}
		p.steps = append(p.steps, step{expect: first, payload: &events.TurnAppended{Entries: parts.New}, calm: true})
	}
	for _, made := range s.steps(w, parts.Raw, parts.Lists) {
		made.expect, made.calm = rest, len(parts.Lists) > 0
		p.steps = append(p.steps, made)
	}
	return p, nil
}

// ready makes the event of a step for the log.
func (h *Handle) ready(ctx context.Context, s *step) error {
	e, err := events.New(cmp.Or(s.source, h.st.Source()), h.session.Subject(), s.payload)
	if err != nil {
		return err
	}
	e.ID, e.Time = s.id, s.event.Time
	e = h.st.Stamp(e)
	if err := e.Validate(); err != nil {
		return err
	}
	s.event, err = h.st.ByReference(ctx, e)
	return err
}

// send sends the events of a save without waiting. The ack of the last one means that all are durable.
func (h *Handle) send(ctx context.Context, steps []step) []*tally.Pending {
	sent := make([]*tally.Pending, len(steps))
	for i, s := range steps {
		send := h.unshown.Log.AppendAsyncBuffered
		if i == len(steps)-1 {
			send = h.unshown.Log.AppendAsync
		}
		sent[i] = send(ctx, h.session.Subject(), s.expect, s.event)
	}
	return sent
}

// acks waits for the sent events, and for the files that show them, and returns the first ack.
func (h *Handle) acks(ctx context.Context, steps []step, sent []*tally.Pending) (log.Ack, error) {
	first, last, err := h.answers(ctx, steps, sent)
	if err != nil {
		return first, err
	}
	if first.Unshown != nil { // the store's owner reports it
		return first, first.Unshown
	}
	return first, h.st.Show(ctx, last, h.session.Subject())
}

// answers waits for the sent events. It returns the first ack, as durable as the last one, and the highest offset.
// Events without an answer, or refused because an earlier one had none, are sent again. An event with an identity that
// the log has already is a duplicate.
func (h *Handle) answers(ctx context.Context, steps []step, sent []*tally.Pending) (first log.Ack, upto events.Offset, err error) {
	newest, last, at := log.Ack{}, log.Ack{}, 0
	for i, p := range sent {
		ack, err := p.Wait(ctx)
		if errors.Is(err, log.ErrUnknown) || errors.Is(err, log.ErrAborted) {
			ack, err = h.unshown.Append(ctx, h.session.Subject(), steps[i].expect, steps[i].event)
		}
		if isThere(err) && steps[i].source != "" {
			ack, err = log.Ack{Duplicate: true}, nil
		}
		if err != nil {
			return ack, 0, err
		}
		if i == 0 {
			first = ack
		}
		if steps[i].calm && !ack.Duplicate {
			h.calmTo(ack.Last)
		}
		if last = ack; ack.Last > newest.Last {
			newest, at = ack, i
		}
	}
	if last.Last < newest.Last { // it was stored before, so its durability says nothing about the others
		last, err = h.unshown.Append(ctx, h.session.Subject(), log.Any, steps[at].event)
	}
	first.Durability, first.Unshown = last.Durability, last.Unshown
	return first, newest.Last, err
}

// calmTo notes that no thread was moved up to an offset, so that the next append has a weaker condition.
func (h *Handle) calmTo(at events.Offset) {
	h.writer.mu.Lock()
	defer h.writer.mu.Unlock()
	h.writer.calm = max(h.writer.calm, at)
}

// isThere reports whether an append was refused because its identity is in the log.
func isThere(err error) bool {
	invalid, ok := errors.AsType[*events.InvalidError](err)
	return ok && invalid.Field == "id"
}

// noteModel notes the model of a run whose setting was stored.
func (h *Handle) noteModel(run, model string) {
	h.writer.mu.Lock()
	defer h.writer.mu.Unlock()
	if h.writer.known && h.writer.models[run] == "" {
		h.writer.models[run] = model
	}
}

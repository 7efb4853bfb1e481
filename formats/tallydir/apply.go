package tallydir

import (
	"context"
	"errors"
	"io"
	"iter"
	"strconv"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
)

// One append holds at most so much: an acknowledgement costs a sync, and a batch
// is in memory as a whole.
const (
	batchEvents = 500
	batchBytes  = 4 << 20
	maxTries    = 25 // of deciding again after somebody else wrote
)

// errChanged says that a file is not any more what it was a moment ago.
var errChanged = errors.New("the file changed while it was read")

// errStop ends a walk over a file whose rest is not needed.
var errStop = errors.New("stop")

// isRace reports whether loading and deciding again may help.
func isRace(err error) bool {
	_, partial := errors.AsType[*log.PartialError](err)
	return partial || errors.Is(err, log.ErrConflict) || errors.Is(err, errChanged)
}

func pause(ctx context.Context, try int) error {
	t := time.NewTimer(2 * time.Millisecond << min(try, 7))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func formatMode(mode int64) string { return strconv.FormatInt(mode, 8) }

func parseMode(text string) int64 {
	mode, err := strconv.ParseInt(text, 8, 32)
	if err != nil {
		return 0
	}
	return mode
}

// guardTypes are those that would make a plan wrong.
func guardTypes() []string {
	return append(events.ThreadTypes(), events.TypeSessionRewound, events.TypeSessionCreated, events.TypeSessionUpdated, events.TypeRunFinished)
}

// events yields what the plan comes to, in the order in which it is appended. The
// files are read again for it.
func (p *plan) events() iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		g := &emitter{p: p, yield: yield}
		g.head()
		for _, move := range p.moves {
			g.emit(move, "thread", "")
		}
		g.turns()
		g.traces()
		for _, s := range p.runs {
			g.run(s)
		}
	}
}

// emitter hands events on until nobody wants more.
type emitter struct {
	p     *plan
	yield func(events.Event, error) bool
	done  bool
}

// emit makes an event of a payload. Its id follows from the base, what it is and
// its content: the same difference stated again is the same event.
func (g *emitter) emit(payload events.Payload, what string, at events.Timestamp) {
	if g.done {
		return
	}
	e, err := events.New(EventSource, g.p.s.Subject, payload)
	if err == nil {
		e.ID = events.DerivedID(Format, g.p.s.Subject.ID, g.p.base.String(), what, payload.EventType(), sumOf(e.Data))
		e.Time = timeOf(at)
	}
	g.done = !g.yield(e, err) || err != nil
}

// timeOf gives a time that an event can have, zero if there is none.
func timeOf(at events.Timestamp) time.Time {
	t, ok := at.Time()
	if year := t.UTC().Year(); !ok || t.Year() < 1 || t.Year() > 9999 || year < 1 || year > 9999 {
		return time.Time{}
	}
	return t
}

func (g *emitter) fail(err error) {
	if err != nil && !g.done {
		g.yield(events.Event{}, err)
		g.done = true
	}
}

func (g *emitter) head() {
	var began events.Timestamp // of a session that is new here: its past is not of today
	if g.p.created != nil {
		began = g.p.created.CreatedAt
		g.emit(g.p.created, "created", began)
	}
	if g.p.updated != nil {
		g.emit(g.p.updated, "updated", began)
	}
}

// turns appends the steps from the first one that the session does not have.
func (g *emitter) turns() {
	if g.p.main < 0 || g.done {
		return
	}
	s := g.p.f.file(turnsName)
	r, err := g.p.f.tree.open(s.full)
	if err != nil {
		g.fail(err)
		return
	}
	defer r.Close()
	n := 0
	err = eachTurn(r, g.p.f.limit, func(raw []byte) error {
		if n++; n > s.lines.turns {
			return errChanged
		}
		if n > g.p.main {
			g.turn(events.MainThread, n, raw)
		}
		if g.done {
			return errStop
		}
		return nil
	})
	if err == nil && n < s.lines.turns {
		err = errChanged
	}
	if !errors.Is(err, errStop) {
		g.fail(err)
	}
}

// turn appends one turn, with the id and the time that it says itself.
func (g *emitter) turn(thread string, n int, raw []byte) {
	entry := events.Entry{Thread: thread, Turn: raw}
	if step, err := rawjson.Object(raw); err == nil && thread == events.MainThread {
		entry.Timestamp = validTime(step, "timestamp")
		if id := memberText(step, "id"); len(id) <= events.MaxIDLen {
			entry.ID = id
		}
	}
	g.emit(&events.TurnAppended{Entries: []events.Entry{entry}}, thread+"/"+strconv.Itoa(n), entry.Timestamp)
}

func (g *emitter) traces() {
	if g.p.traces < 0 || g.done {
		return
	}
	s := g.p.f.file(tracesName)
	data, err := g.p.f.read(s)
	if err == nil && sumOf(data) != s.sum {
		err = errChanged
	}
	if err != nil {
		g.fail(err)
		return
	}
	elements, err := readArray(data)
	g.fail(err)
	for n := g.p.traces; n < len(elements) && !g.done; n++ {
		raw := []byte(elements[n])
		if s.format.Indent != "" {
			raw = rawjson.AppendCompact(nil, raw) // the indent gives the white space back
		}
		g.turn(tracesThread, n+1, raw)
	}
}

// run records the result of a run.
func (g *emitter) run(s *source) {
	if g.done {
		return
	}
	raw, err := g.p.reread(s)
	if err != nil {
		g.fail(err)
		return
	}
	p := &events.RunFinished{Run: s.place.run, Result: raw}
	p.Outcome, p.FinishedAt = outcomeOf(s.place.run.Kind, raw)
	if format, ok := g.p.formats[keyOf(s.path)]; ok {
		p.Formats = map[string]events.FileFormat{keyOf(s.path): format}
	}
	g.emit(p, "run", p.FinishedAt)
}

// outcomeOf reads from a result how the run ended, and when.
func outcomeOf(kind string, raw events.Raw) (string, events.Timestamp) {
	result, err := rawjson.Object(raw)
	if err != nil {
		return "completed", ""
	}
	at := validTime(result, "createdAt")
	if at == "" {
		at = validTime(result, "timestamp")
	}
	completed, said := result.Get("completed")
	if kind != kindTrajectory || !said || string(completed) != "false" {
		return "completed", at
	}
	switch reason := memberText(result, "reason"); reason {
	case "", "error":
		return "failed", at
	default:
		return "stopped:" + reason, at
	}
}

// writer appends events of one session in batches, each on the condition that
// nothing came that would make the plan wrong.
type writer struct {
	target formats.Target
	sub    events.Subject
	expect log.Expect
	batch  []events.Event
	size   int
	added  int
	told   func(added int)
}

func newWriter(target formats.Target, p *plan, told func(int)) *writer {
	w := &writer{target: target, sub: p.s.Subject, expect: log.At(0), told: told}
	if !p.fresh {
		w.expect = log.Since(p.base, guardTypes()...)
	}
	return w
}

func (w *writer) add(ctx context.Context, e events.Event) error {
	if len(w.batch) == batchEvents || len(w.batch) > 0 && w.size+len(e.Data) > batchBytes {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	w.batch = append(w.batch, e)
	w.size += len(e.Data)
	return nil
}

// flush appends the batch. It is on disk, or not there at all, when a crash
// comes: the next import finds what is missing.
func (w *writer) flush(ctx context.Context) error {
	if len(w.batch) == 0 {
		return nil
	}
	ack, err := w.target.Append(ctx, w.sub, w.expect, w.batch...)
	if err != nil {
		return err
	}
	if !ack.Duplicate {
		w.added += len(w.batch)
		w.told(len(w.batch))
	}
	w.expect = log.Since(ack.Last, guardTypes()...)
	clear(w.batch)
	w.batch, w.size = w.batch[:0], 0
	return nil
}

// apply carries a plan out, or counts what it comes to. It returns the number of
// events added.
func (p *plan) apply(ctx context.Context, target formats.Target, dry bool, told func(int)) (int, error) {
	added, err := p.applyDocuments(ctx, target, dry)
	told(added)
	if err != nil {
		return added, err
	}
	w := newWriter(target, p, told)
	for e, err := range p.events() {
		switch {
		case err != nil:
		case dry:
			w.added++
			told(1)
		default:
			err = w.add(ctx, e)
		}
		if err != nil {
			return added + w.added, err
		}
	}
	err = w.flush(ctx)
	return added + w.added, err
}

// applyDocuments keeps files whole, before any event names them.
func (p *plan) applyDocuments(ctx context.Context, target formats.Target, dry bool) (int, error) {
	added := 0
	for _, s := range p.whole {
		link := events.Link{Rel: "session", To: p.s.Subject.String()}
		n, err := putDocument(ctx, target, wholeFile{
			doc: p.document(s), meta: docMeta(p.origin.Root, p.origin.Marker, s, link), size: s.size, sum: s.sum,
			content: func() (io.ReadCloser, error) { return p.f.tree.open(s.full) },
		}, dry)
		added += n
		if err != nil {
			return added, err
		}
	}
	for _, doc := range p.gone {
		n, err := deleteDocument(ctx, target, doc, dry)
		added += n
		if err != nil {
			return added, err
		}
	}
	return added, nil
}

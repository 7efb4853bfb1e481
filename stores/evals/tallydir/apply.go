package tallydir

import (
	"context"
	"errors"
	"iter"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals/internal/steps"
	"github.com/tallylog/tally/stores/internal/foreign"
)

// errStop ends a walk over a file whose rest is not needed.
var errStop = errors.New("stop")

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

// emit makes an event of a payload.
func (g *emitter) emit(payload events.Payload, what string, at events.Timestamp) {
	if g.done {
		return
	}
	e, err := events.NewVerbatim(EventSource, g.p.s.Subject, payload)
	if err == nil {
		e = stamp.Named(e, g.p.base, what, at)
	}
	if err == nil && g.p.recall {
		g.p.made = append(g.p.made, projector.Fact{Record: events.Record{Event: e}, Payload: payload})
	}
	g.done = !g.yield(e, err) || err != nil
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
	if s.lines.list == nil {
		g.turnsAgain(s)
		return
	}
	for n := g.p.main; n < len(s.lines.list) && !g.done; n++ {
		g.turn(n+1, s.lines.list[n])
	}
}

// turnsAgain reads them once more for it.
func (g *emitter) turnsAgain(s *source) {
	r, err := g.p.f.Tree.Open(s.Full)
	if err != nil {
		g.fail(err)
		return
	}
	defer r.Close()
	n := 0
	err = foreign.EachTurn(r, g.p.f.Limit, func(t foreign.TurnLine) error {
		if n++; n > s.lines.turns {
			return foreign.ErrChanged
		}
		if n > g.p.main {
			g.turn(n, steps.Entry(t.Raw, t.Step))
		}
		if g.done {
			return errStop
		}
		return nil
	})
	if err == nil && n < s.lines.turns {
		err = foreign.ErrChanged
	}
	if !errors.Is(err, errStop) {
		g.fail(err)
	}
}

// turn appends one turn.
func (g *emitter) turn(n int, e events.Entry) {
	g.emit(&events.TurnAppended{Entries: []events.Entry{e}}, e.Thread+"/"+strconv.Itoa(n), e.Timestamp)
}

func (g *emitter) traces() {
	if g.p.traces < 0 || g.done {
		return
	}
	s := g.p.f.file(tracesName)
	data, err := g.p.f.read(s)
	if err == nil && foreign.SumOf(data) != s.Sum {
		err = foreign.ErrChanged
	}
	if err != nil {
		g.fail(err)
		return
	}
	elements, err := readArray(data)
	g.fail(err)
	for n := g.p.traces; n < len(elements) && !g.done; n++ {
		raw := []byte(elements[n])
		if s.Format.Indent != "" {
			raw = rawjson.AppendCompact(nil, raw) // the indent gives the white space back
		}
		g.turn(n+1, events.Entry{Thread: steps.TracesThread, Turn: raw})
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
	p.Outcome, p.FinishedAt = s.outcome, s.finished
	if format, ok := g.p.formats[foreign.KeyOf(s.Path)]; ok {
		p.Formats = map[string]events.FileFormat{foreign.KeyOf(s.Path): format}
	}
	g.emit(p, "run", p.FinishedAt)
}

// apply carries a plan out.
func (p *plan) apply(ctx context.Context, im *foreign.Intake) error {
	if err := p.applyDocuments(ctx, im); err != nil {
		return err
	}
	w := im.Writer(p.s.Subject, p.base, guardTypes())
	w.Rewrites = p.rewrites
	for e, err := range p.events() {
		if err == nil {
			err = w.Add(ctx, e)
		}
		if err != nil {
			return err
		}
	}
	err := w.Flush(ctx)
	p.alone = w.Added == len(p.made)
	return err
}

// applyDocuments keeps files whole, before any event names them.
func (p *plan) applyDocuments(ctx context.Context, im *foreign.Intake) error {
	for _, s := range p.whole {
		if err := im.Keep(ctx, p.document(s), p.origin, s.File, events.Link{Rel: "session", To: p.s.Subject.String()}); err != nil {
			return err
		}
	}
	for _, doc := range p.gone {
		if err := im.Drop(ctx, doc); err != nil {
			return err
		}
	}
	return nil
}

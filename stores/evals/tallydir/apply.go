package tallydir

import (
	"context"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals/internal/steps"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Apply implements sessiondir.Plan.
func (p *plan) Apply(ctx context.Context) error {
	p.recall = p.fresh && p.f.small() && p.f.In.Dry == nil
	if err := p.applyDocuments(ctx); err != nil {
		return err
	}
	g := emitter{p: p, w: p.f.In.Writer(p.s.Subject, p.base, events.TypeRunFinished)}
	g.w.Rewrites = p.rewrites
	for _, emit := range []func(context.Context) error{g.head, g.turns, g.traces, g.runs, g.w.Flush} {
		if err := emit(ctx); err != nil {
			return err
		}
	}
	p.alone = g.w.Added == len(p.made)
	return nil
}

// emitter appends the events of a plan. It reads the files again.
type emitter struct {
	p *plan
	w *sessiondir.Writer
}

// emit appends an event with a payload.
func (g emitter) emit(ctx context.Context, payload events.Payload, what string, at events.Timestamp) error {
	e, err := events.NewVerbatim(EventSource, g.p.s.Subject, payload)
	if err != nil {
		return err
	}
	e = stamp.Named(e, g.p.base, what, at)
	if g.p.recall {
		g.p.made = append(g.p.made, projector.Fact{Record: events.Record{Event: e}, Payload: payload})
	}
	return g.w.Add(ctx, e)
}

// head appends the events outside of turns and runs.
func (g emitter) head(ctx context.Context) error {
	var began events.Timestamp // of a new session, whose history is not dated today
	if c := g.p.created; c != nil {
		began = c.CreatedAt
		if err := g.emit(ctx, c, "created", began); err != nil {
			return err
		}
	}
	if g.p.updated != nil {
		if err := g.emit(ctx, g.p.updated, "updated", began); err != nil {
			return err
		}
	}
	for _, move := range g.p.moves {
		if err := g.emit(ctx, move, "thread", ""); err != nil {
			return err
		}
	}
	return nil
}

// turns appends the steps from the first one that the session does not have.
func (g emitter) turns(ctx context.Context) error {
	if g.p.main < 0 {
		return nil
	}
	s := g.p.f.file(turnsName)
	if s.lines.list == nil {
		return g.turnsAgain(ctx, s)
	}
	for n := g.p.main; n < len(s.lines.list); n++ {
		if err := g.turn(ctx, n+1, s.lines.list[n]); err != nil {
			return err
		}
	}
	return nil
}

// turnsAgain appends them by reading the file again.
func (g emitter) turnsAgain(ctx context.Context, s *source) error {
	r, err := g.p.f.Tree.Open(s.Full)
	if err != nil {
		return err
	}
	defer r.Close()
	n := 0
	err = sessiondir.EachTurn(r, g.p.f.Limit, func(t sessiondir.TurnLine) error {
		if n++; n > s.lines.turns {
			return sessiondir.ErrChanged
		}
		if n <= g.p.main {
			return nil
		}
		return g.turn(ctx, n, steps.Entry(t.Raw, t.Step))
	})
	if err == nil && n < s.lines.turns {
		err = sessiondir.ErrChanged
	}
	return err
}

// turn appends one turn.
func (g emitter) turn(ctx context.Context, n int, e events.Entry) error {
	return g.emit(ctx, &events.TurnAppended{Entries: []events.Entry{e}}, e.Thread+"/"+strconv.Itoa(n), e.Timestamp)
}

func (g emitter) traces(ctx context.Context) error {
	if g.p.traces < 0 {
		return nil
	}
	s := g.p.f.file(tracesName)
	data, err := g.p.f.read(s)
	if err != nil {
		return err
	}
	if sessiondir.SumOf(data) != s.Sum {
		return sessiondir.ErrChanged
	}
	elements, err := readArray(data)
	for n := g.p.traces; n < len(elements) && err == nil; n++ {
		raw := []byte(elements[n])
		if s.Format.Indent != "" {
			raw = rawjson.AppendCompact(nil, raw) // the indent restores the white space
		}
		err = g.turn(ctx, n+1, events.Entry{Thread: steps.TracesThread, Turn: raw})
	}
	return err
}

// runs appends the results of runs.
func (g emitter) runs(ctx context.Context) error {
	for _, s := range g.p.runs {
		raw, err := g.p.reread(s)
		if err != nil {
			return err
		}
		p := &events.RunFinished{Run: s.role.run, Result: raw, Outcome: s.outcome, FinishedAt: s.finished}
		if format, ok := g.p.formats[sessiondir.KeyOf(s.Path)]; ok {
			p.Formats = map[string]events.FileFormat{sessiondir.KeyOf(s.Path): format}
		}
		if err := g.emit(ctx, p, "run", p.FinishedAt); err != nil {
			return err
		}
	}
	return nil
}

// applyDocuments keeps files whole, before any event refers to them.
func (p *plan) applyDocuments(ctx context.Context) error {
	for _, s := range p.whole {
		if err := p.f.In.Keep(ctx, p.document(s), p.origin, s.File, events.Link{Rel: "session", To: p.s.Subject.String()}); err != nil {
			return err
		}
	}
	for _, doc := range p.gone {
		if err := p.f.In.Drop(ctx, doc); err != nil {
			return err
		}
	}
	return nil
}

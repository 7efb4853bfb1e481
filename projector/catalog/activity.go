package catalog

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// activitySchema is the tables of what was spent and done, in the file of the search
// view. What must be recognised when it comes again has a row of its own: a response that
// several turns hold, a call and its error. They stand in the order in which they are
// recognised, so that reading them is one pass and no second index is needed; the rows of
// one session are looked for only when it is folded anew. Turns are only counted.
const activitySchema = `
CREATE TABLE usage{set}(
	namespace TEXT NOT NULL, session TEXT NOT NULL, offset INTEGER NOT NULL, thread TEXT NOT NULL, number INTEGER NOT NULL,
	source TEXT NOT NULL, day TEXT NOT NULL, model TEXT NOT NULL, response TEXT NOT NULL, run_kind TEXT NOT NULL, run_id TEXT NOT NULL, usd TEXT NOT NULL,
	input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL,
	cache_read_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL,
	PRIMARY KEY(namespace, response, output_tokens, offset, thread, number), UNIQUE(namespace, session, offset, thread, number)) WITHOUT ROWID;
CREATE TABLE calls{set}(
	namespace TEXT NOT NULL, session TEXT NOT NULL, offset INTEGER NOT NULL, thread TEXT NOT NULL, number INTEGER NOT NULL, part INTEGER NOT NULL,
	day TEXT NOT NULL, model TEXT NOT NULL, response TEXT NOT NULL, call TEXT NOT NULL, tool TEXT NOT NULL, error INTEGER NOT NULL,
	PRIMARY KEY(namespace, call, offset, thread, number, part)) WITHOUT ROWID;
CREATE TABLE days{set}(
	namespace TEXT NOT NULL, session TEXT NOT NULL, day TEXT NOT NULL, model TEXT NOT NULL, turns INTEGER NOT NULL,
	PRIMARY KEY(namespace, session, day, model)) WITHOUT ROWID;
`

var activityTables = []string{"usage", "calls", "days"}

// InTurn is the source of usage that a turn tells; that of a cost is what its event says.
const InTurn = "turn"

// activity is what a commit will store in these tables.
type activity struct {
	usage []usageRow
	calls []callRow
	days  map[dayKey]int // turns
}

// where is the place of a turn, or of a cost.
type where struct {
	subject events.Subject
	offset  events.Offset
	thread  string
	number  int // among the turns that the event brought to the thread, from 0
}

type usageRow struct {
	where
	costKey
	source, response string
	usd              events.Amount
	tokens           events.Tokens
}

type callRow struct {
	where
	part                 int
	day, model, response string
	projector.ToolUse
}

type dayKey struct {
	subject    events.Subject
	day, model string
}

// rowSize is about how many bytes of memory a row takes.
const rowSize = 300

// turn takes what a turn of a day says, and returns about how many bytes that takes. What
// an agent logs does not count as a turn.
func (a *activity) turn(at where, day string, run *events.RunRef, said projector.Said, counts bool) int64 {
	if a.days == nil {
		a.days = make(map[dayKey]int)
	}
	if counts {
		a.days[dayKey{at.subject, day, said.Model}]++
	}
	rows := len(said.Tools)
	if said.Usage != (events.Tokens{}) && isCount(said.Usage) {
		a.usage = append(a.usage, usageRow{where: at, costKey: newCostKey(day, said.Model, run), source: InTurn, response: said.Response, tokens: said.Usage})
		rows++
	}
	for i, use := range said.Tools {
		a.calls = append(a.calls, callRow{at, i, day, said.Model, said.Response, use})
	}
	return int64(rows * rowSize)
}

// cost takes a cost, and returns about how many bytes that takes.
func (a *activity) cost(f projector.Fact, p *events.CostAccrued) int64 {
	c := projector.CostOf(f, p)
	row := usageRow{where: where{subject: f.Subject, offset: f.Offset}, costKey: newCostKey(c.Day(), c.Model, c.Run), source: c.Source, response: c.Response, usd: c.USD, tokens: c.Tokens}
	a.usage = append(a.usage, row)
	return rowSize
}

// isCount reports whether a turn, which nobody has checked, can mean what it says.
func isCount(t events.Tokens) bool {
	const most = 1 << 53
	for _, n := range []int64{t.Input, t.Output, t.Reasoning, t.CacheRead, t.CacheWrite} {
		if n < 0 || n > most {
			return false
		}
	}
	return true
}

// drop lets go of what a subject brought.
func (a *activity) drop(sub events.Subject) {
	a.usage = slices.DeleteFunc(a.usage, func(r usageRow) bool { return r.subject == sub })
	a.calls = slices.DeleteFunc(a.calls, func(r callRow) bool { return r.subject == sub })
	for key := range a.days {
		if key.subject == sub {
			delete(a.days, key)
		}
	}
}

// store writes what was taken.
func (a *activity) store(ctx context.Context, f *file) error {
	for _, r := range a.usage {
		if err := f.put(ctx, "usage", append(r.where.columns(), r.source, r.day, r.model, r.response, r.run.Kind, r.run.ID, string(r.usd),
			r.tokens.Input, r.tokens.Output, r.tokens.Reasoning, r.tokens.CacheRead, r.tokens.CacheWrite)...); err != nil {
			return err
		}
	}
	for _, r := range a.calls {
		if err := f.put(ctx, "calls", append(r.columns(), r.part, r.day, r.model, r.response, r.Call, r.Tool, r.Error)...); err != nil {
			return err
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(a.days), dayKey.compare) {
		if err := f.run(ctx, "INSERT INTO days{set} VALUES(?,?,?,?,?) ON CONFLICT DO UPDATE SET turns=turns+excluded.turns",
			key.subject.Namespace, key.subject.ID, key.day, key.model, a.days[key]); err != nil {
			return err
		}
	}
	return nil
}

// columns are the first ones of a row.
func (w where) columns() []any {
	return []any{w.subject.Namespace, w.subject.ID, int64(w.offset), w.thread, w.number}
}

// compare puts neighbours of a table beside each other.
func (k dayKey) compare(o dayKey) int {
	return cmp.Or(cmp.Compare(k.subject.Namespace, o.subject.Namespace), cmp.Compare(k.subject.ID, o.subject.ID), cmp.Compare(k.day, o.day), cmp.Compare(k.model, o.model))
}

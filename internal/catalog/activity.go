package catalog

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// activitySchema defines the tables of usage and activity, in the file of the search view. Repeatable facts have a row
// of their own so that repetitions are recognised: a response that several turns hold, a call and its error. The rows
// are ordered by the key that identifies repetitions, so one pass reads them and no second index is needed. The rows of
// one session are only searched when it is folded again. Turns are only counted.
const activitySchema = `
CREATE TABLE usage{set}(
	namespace TEXT NOT NULL, session TEXT NOT NULL, offset INTEGER NOT NULL, thread TEXT NOT NULL, number INTEGER NOT NULL,
	source TEXT NOT NULL, day TEXT NOT NULL, model TEXT NOT NULL, response TEXT NOT NULL, run_kind TEXT NOT NULL, run_id TEXT NOT NULL, usd TEXT NOT NULL,
	input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL,
	cache_read_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL,
	cache_hour_tokens INTEGER NOT NULL, searches INTEGER NOT NULL, speed TEXT NOT NULL, tier TEXT NOT NULL, region TEXT NOT NULL,
	at TEXT NOT NULL, again INTEGER NOT NULL,
	PRIMARY KEY(namespace, response, output_tokens, offset, thread, number), UNIQUE(namespace, session, offset, thread, number)) WITHOUT ROWID;
CREATE TABLE calls{set}(
	namespace TEXT NOT NULL, session TEXT NOT NULL, offset INTEGER NOT NULL, thread TEXT NOT NULL, number INTEGER NOT NULL, part INTEGER NOT NULL,
	day TEXT NOT NULL, model TEXT NOT NULL, response TEXT NOT NULL, call TEXT NOT NULL, tool TEXT NOT NULL, error INTEGER NOT NULL, at TEXT NOT NULL,
	PRIMARY KEY(namespace, call, offset, thread, number, part)) WITHOUT ROWID;
CREATE TABLE days{set}(
	namespace TEXT NOT NULL, session TEXT NOT NULL, day TEXT NOT NULL, quarter TEXT NOT NULL, model TEXT NOT NULL, turns INTEGER NOT NULL,
	PRIMARY KEY(namespace, session, day, quarter, model)) WITHOUT ROWID;
` + stripSchema

var activityTables = []string{"usage", "calls", "days", "strip"}

// InTurn is the source of usage that a turn reports. A cost has the source in its event.
const InTurn = "turn"

// activity holds the rows of the next commit.
type activity struct {
	usage []usageRow
	calls []callRow
	days  map[dayKey]int // number of turns
	strip strip
}

// turnLocation locates a turn or a cost.
type turnLocation struct {
	subject events.Subject
	offset  events.Offset
	thread  string
	number  int // among the turns that the event added to the thread, from 0
}

type usageRow struct {
	turnLocation
	costKey
	source, response string
	usd              events.Amount
	tokens           events.Tokens
	terms            events.Terms
	at               events.Timestamp
	again            bool // a turn of a list that replaced another one, which may have contained the turn
}

type callRow struct {
	turnLocation
	part                 int
	day, model, response string
	at                   events.Timestamp
	projector.ToolUse
}

type dayKey struct {
	subject             events.Subject
	day, quarter, model string
}

// quarterOf returns the start of the quarter of an hour of a time, in UTC, such as 14:45. In every time zone, days
// begin at such a start.
func quarterOf(at events.Timestamp) string {
	t, ok := at.Time()
	if !ok {
		return "00:00"
	}
	return t.UTC().Truncate(15 * time.Minute).Format("15:04")
}

// rowSize is the approximate memory of a row, in bytes.
const rowSize = 300

// turnRow is a turn with its location and time.
type turnRow struct {
	turnLocation
	at     events.Timestamp
	run    *events.RunRef
	again  bool
	counts bool // counts as a turn; log entries of an agent do not
	bytes  int
}

// turn adds the rows of a turn, and returns their approximate memory in bytes.
func (a *activity) turn(t turnRow, said projector.Said) int64 {
	day := dayOf(t.at)
	if a.days == nil {
		a.days = make(map[dayKey]int)
	}
	if t.counts {
		a.days[dayKey{t.subject, day, quarterOf(t.at), said.Model}]++
		a.strip.turn(t, said)
	}
	rows := len(said.Tools)
	if said.Usage != (events.Tokens{}) && isCount(said.Usage) {
		a.usage = append(a.usage, usageRow{turnLocation: t.turnLocation, costKey: newCostKey(day, said.Model, t.run), source: InTurn, response: said.Response,
			tokens: said.Usage, terms: said.Terms, at: t.at, again: t.again})
		rows++
	}
	for i, use := range said.Tools {
		a.calls = append(a.calls, callRow{t.turnLocation, i, day, said.Model, said.Response, t.at, use})
	}
	return int64(rows * rowSize)
}

// cost adds the row of a cost, and returns its approximate memory in bytes.
func (a *activity) cost(f projector.Fact, p *events.CostAccrued) int64 {
	c := projector.CostOf(f, p)
	row := usageRow{turnLocation: turnLocation{subject: f.Subject, offset: f.Offset},
		costKey: newCostKey(c.Day(), c.Model, c.Run), source: c.Source, response: c.Response,
		usd: c.USD, tokens: c.Tokens, terms: events.TermsOf(p.Raw), at: c.Time}
	a.usage = append(a.usage, row)
	return rowSize
}

// isCount reports whether the token counts of an unchecked turn are plausible.
func isCount(t events.Tokens) bool {
	const limit = 1 << 53
	for _, n := range []int64{t.Input, t.Output, t.Reasoning, t.CacheRead, t.CacheWrite} {
		if n < 0 || n > limit {
			return false
		}
	}
	return true
}

// drop removes the rows of a subject.
func (a *activity) drop(sub events.Subject) {
	a.usage = slices.DeleteFunc(a.usage, func(r usageRow) bool { return r.subject == sub })
	a.calls = slices.DeleteFunc(a.calls, func(r callRow) bool { return r.subject == sub })
	maps.DeleteFunc(a.days, func(key dayKey, _ int) bool { return key.subject == sub })
	maps.DeleteFunc(a.strip, func(key stripKey, _ *StripBlock) bool { return key.subject == sub })
}

// store writes the rows.
func (a *activity) store(ctx context.Context, f *viewFile) error {
	for _, r := range a.usage {
		if err := f.put(ctx, "usage", append(r.turnLocation.columns(), r.source, r.day, r.model, r.response, r.run.Kind, r.run.ID, string(r.usd),
			r.tokens.Input, r.tokens.Output, r.tokens.Reasoning, r.tokens.CacheRead, r.tokens.CacheWrite,
			r.terms.CacheHour, r.terms.Searches, r.terms.Speed, r.terms.Tier, r.terms.Region, string(r.at), r.again)...); err != nil {
			return err
		}
	}
	for _, r := range a.calls {
		if err := f.put(ctx, "calls", append(r.columns(), r.part, r.day, r.model, r.response, r.Call, r.Tool, r.Error, string(r.at))...); err != nil {
			return err
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(a.days), dayKey.compare) {
		if err := f.run(ctx, "INSERT INTO days{set} VALUES(?,?,?,?,?,?) ON CONFLICT DO UPDATE SET turns=turns+excluded.turns",
			key.subject.Namespace, key.subject.ID, key.day, key.quarter, key.model, a.days[key]); err != nil {
			return err
		}
	}
	return a.strip.store(ctx, f)
}

// columns returns the first columns of a row.
func (w turnLocation) columns() []any {
	return []any{w.subject.Namespace, w.subject.ID, int64(w.offset), w.thread, w.number}
}

// compare orders rows as the table does.
func (k dayKey) compare(o dayKey) int {
	return cmp.Or(cmp.Compare(k.subject.Namespace, o.subject.Namespace), cmp.Compare(k.subject.ID, o.subject.ID), cmp.Compare(k.day, o.day),
		cmp.Compare(k.quarter, o.quarter), cmp.Compare(k.model, o.model))
}

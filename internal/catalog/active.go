package catalog

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
)

// Activity reads spending and activity by day. It is safe for concurrent use.
type Activity struct{ *viewReader }

// OpenActivity opens the search view in a directory. If the directory has no readable view, the error is ErrNoView.
func OpenActivity(ctx context.Context, dir string) (Activity, error) {
	r, err := openReader(ctx, searchForm, filepath.Join(dir, SearchFileName))
	return Activity{r}, err
}

// Usage is one cost, or the usage of one response that no cost reports.
type Usage struct {
	Session  string
	Offset   events.Offset
	First    events.Offset    // of the first cost with the same response, if that is another cost: this one counts there, for that session and run
	Source   string           // source of the cost (reported or computed), or InTurn
	Day      string           // such as 2026-03-01, in UTC
	At       events.Timestamp // its time
	Model    string           // "": the turn names no model
	Response string           // the vendor's id; "": none
	Run      *events.RunRef
	USD      events.Amount // "": unknown
	Tokens   events.Tokens
	Terms    events.Terms

	again bool
}

// CountsAt returns the offset in its session where it counts.
func (u Usage) CountsAt() events.Offset { return cmp.Or(u.First, u.Offset) }

// Copy is a cost that is left out because it names a response that another session paid for first.
type Copy struct {
	Session string
	Offset  events.Offset
	Of      string // the session that the response counts for
	Model   string
	USD     events.Amount // "": unknown
	Tokens  events.Tokens
}

// Usages yields the costs of a namespace, and the usage in turns whose response no cost names. An id that
// events.IsUnique accepts identifies one response. Of the costs with the same such id and model, one counts: the one
// with the most output, of equals the last, for the session and run of the first. The same holds for the turns. Any
// other cost counts by itself. So does a turn, with two exceptions: a cost of its session has its id, or the turn was
// repeated in a list that replaced the one it was in. Rewinds have no influence. copied, if not nil, is called with
// each cost that is left out in favour of another session's.
func (a Activity) Usages(ctx context.Context, namespace string, copied func(Copy)) iter.Seq2[Usage, error] {
	return a.usages(ctx, copied, "", namespace)
}

// UsagesOf yields the usages of some sessions, and reports the copies in them.
func (a Activity) UsagesOf(ctx context.Context, namespace string, copied func(Copy), sessions ...string) iter.Seq2[Usage, error] {
	return func(yield func(Usage, error) bool) {
		for part := range slices.Chunk(sessions, maxScope) {
			args := []any{namespace}
			for _, id := range part {
				args = append(args, id)
			}
			in := func(c Copy) {
				if copied != nil && slices.Contains(part, c.Session) {
					copied(c)
				}
			}
			of := ` AND session IN (?` + strings.Repeat(",?", len(part)-1) + `)`
			anonymous := a.usages(ctx, nil, of+` AND response=''`, args...)
			named := a.usages(ctx, in, ` AND response<>'' AND response IN (SELECT response FROM usage WHERE namespace=?`+of+`)`, append([]any{namespace}, args...)...)
			for _, list := range []iter.Seq2[Usage, error]{anonymous, named} {
				for u, err := range list {
					if (err != nil || slices.Contains(part, u.Session)) && !yield(u, err) {
						return
					}
				}
			}
		}
	}
}

// usages yields the counting usages among the rows of a namespace that match a condition. The condition must match all
// or no rows of a response.
func (a Activity) usages(ctx context.Context, copied func(Copy), condition string, args ...any) iter.Seq2[Usage, error] {
	return func(yield func(Usage, error) bool) {
		rows, err := a.db.QueryContext(ctx, `SELECT session, offset, source, day, at, model, response, run_kind, run_id, usd,
			input_tokens, output_tokens, reasoning_tokens, cache_read_tokens, cache_write_tokens,
			cache_hour_tokens, searches, speed, tier, region, again
			FROM usage WHERE namespace=?`+condition+` ORDER BY response, output_tokens, offset, thread, number`, args...)
		var same responseUsage
		err = each(rows, err, func() error {
			u, err := scanUsage(rows)
			if err != nil {
				return err
			}
			if u.Response != same.response || u.Response == "" {
				if !same.yield(copied, yield) {
					return errEnough
				}
				same = responseUsage{response: u.Response}
			}
			same.rows = append(same.rows, u)
			return nil
		})
		if err == nil {
			same.yield(copied, yield)
		} else if !errors.Is(err, errEnough) {
			yield(Usage{}, a.wrap(err))
		}
	}
}

// responseUsage holds the costs and turns with one id, in ascending order of priority.
type responseUsage struct {
	response string
	rows     []Usage
}

// yield yields the usages that count.
func (r *responseUsage) yield(copied func(Copy), yield func(Usage, error) bool) bool {
	counting := r.each
	if events.IsUnique(r.response) {
		counting = func() []Usage { return r.joined(copied) }
	}
	for _, u := range counting() {
		if !yield(u, nil) {
			return false
		}
	}
	return true
}

// joined returns one usage for each model with a cost of the id, or else the last turn.
func (r *responseUsage) joined(copied func(Copy)) (counts []Usage) {
	first := make(map[string]Usage) // by model, the cost with the lowest offset
	for _, u := range r.rows {
		if f, ok := first[u.Model]; u.Source != InTurn && (!ok || u.Offset < f.Offset) {
			first[u.Model] = u
		}
	}
	if len(first) == 0 {
		return r.rows[len(r.rows)-1:]
	}
	best := make(map[string]Usage)
	for _, u := range r.rows {
		if u.Source == InTurn {
			continue
		}
		f := first[u.Model]
		if copied != nil && u.Session != f.Session {
			copied(Copy{u.Session, u.Offset, f.Session, u.Model, u.USD, u.Tokens})
		}
		if u.Offset != f.Offset {
			u.First, u.Session, u.Run = f.Offset, f.Session, f.Run
		}
		best[u.Model] = u
	}
	for _, model := range slices.Sorted(maps.Keys(best)) {
		counts = append(counts, best[model])
	}
	return counts
}

// each returns the usages of an id that may not be unique.
func (r *responseUsage) each() (counts []Usage) {
	type said struct {
		session, model string
		tokens         events.Tokens
	}
	paid, seen := make(map[string]bool), make(map[said]bool)
	for _, u := range r.rows {
		paid[u.Session] = paid[u.Session] || u.Source != InTurn && r.response != ""
	}
	for _, u := range r.rows {
		if u.Source == InTurn {
			key := said{u.Session, u.Model, u.Tokens}
			if paid[u.Session] || u.again && seen[key] {
				continue
			}
			seen[key] = true
		}
		counts = append(counts, u)
	}
	return counts
}

// errEnough reports that the caller wants no more rows.
var errEnough = errors.New("enough")

func scanUsage(rows *sql.Rows) (Usage, error) {
	var u Usage
	var run events.RunRef
	err := rows.Scan(&u.Session, offset(&u.Offset), &u.Source, &u.Day, &u.At, &u.Model, &u.Response, &run.Kind, &run.ID, &u.USD,
		&u.Tokens.Input, &u.Tokens.Output, &u.Tokens.Reasoning, &u.Tokens.CacheRead, &u.Tokens.CacheWrite,
		&u.Terms.CacheHour, &u.Terms.Searches, &u.Terms.Speed, &u.Terms.Tier, &u.Terms.Region, &u.again)
	if run != (events.RunRef{}) {
		u.Run = &run
	}
	return u, err
}

// Call is a tool call.
type Call struct {
	Session string
	Offset  events.Offset
	Day     string           // in UTC
	At      events.Timestamp // of the turn
	Model   string
	Tool    string
	Failed  bool // it ended with an error
}

// Calls yields the tool calls in a namespace, each once. Rows with the same call id in the same response are the same
// call. Without a unique response id, the session takes its place. An error belongs to the last earlier call with its
// id in its session.
func (a Activity) Calls(ctx context.Context, namespace string) iter.Seq2[Call, error] {
	return func(yield func(Call, error) bool) {
		rows, err := a.db.QueryContext(ctx, `SELECT session, offset, day, at, model, tool, response, call, error
			FROM calls WHERE namespace=? ORDER BY call, offset, thread, number, part`, namespace)
		var same callGroup
		err = each(rows, err, func() error {
			var c Call
			var response, id string
			var isError bool
			if err := rows.Scan(&c.Session, offset(&c.Offset), &c.Day, &c.At, &c.Model, &c.Tool, &response, &id, &isError); err != nil {
				return err
			}
			if id != same.id || id == "" {
				if !same.yield(yield) {
					return errEnough
				}
				same = callGroup{id: id}
			}
			same.add(c, response, isError)
			return nil
		})
		if err == nil {
			same.yield(yield)
		} else if !errors.Is(err, errEnough) {
			yield(Call{}, a.wrap(err))
		}
	}
}

// callGroup holds the calls with one id.
type callGroup struct {
	id   string
	list []Call
	seen map[string]bool // by response, or session
	last map[string]int  // by session
}

func (s *callGroup) add(c Call, response string, isError bool) {
	if s.seen == nil {
		s.seen, s.last = make(map[string]bool), make(map[string]int)
	}
	if isError {
		if i, ok := s.last[c.Session]; ok {
			s.list[i].Failed = true
		}
		return
	}
	same := "in " + c.Session
	if events.IsUnique(response) {
		same = "of " + response
	}
	if s.seen[same] {
		return
	}
	s.seen[same] = true
	s.last[c.Session] = len(s.list)
	s.list = append(s.list, c)
}

func (s *callGroup) yield(yield func(Call, error) bool) bool {
	for _, c := range s.list {
		if !yield(c, nil) {
			return false
		}
	}
	return true
}

// Day is the number of turns that a session got in a quarter of an hour, with one model.
type Day struct {
	Session string
	Day     string // in UTC
	Quarter string // in UTC, such as 14:45
	Model   string // "": turns without model
	Turns   int    // turns that were added, live or not
}

// Days yields the numbers of turns in a namespace.
func (a Activity) Days(ctx context.Context, namespace string) iter.Seq2[Day, error] {
	return func(yield func(Day, error) bool) {
		rows, err := a.db.QueryContext(ctx, "SELECT session, day, quarter, model, turns FROM days WHERE namespace=? ORDER BY session, day, quarter, model", namespace)
		err = each(rows, err, func() error {
			var d Day
			if err := rows.Scan(&d.Session, &d.Day, &d.Quarter, &d.Model, &d.Turns); err != nil {
				return err
			}
			if !yield(d, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(Day{}, a.wrap(err))
		}
	}
}

package catalog

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
)

// Activity reads what was spent and done, day by day. It is safe for concurrent use.
type Activity struct{ *reader }

// OpenActivity opens the search view in a directory, which holds it. If there is no view
// that can be read, that is ErrNoView.
func OpenActivity(ctx context.Context, dir string) (Activity, error) {
	r, err := openReader(ctx, searchForm, filepath.Join(dir, SearchFileName))
	return Activity{r}, err
}

// Usage is what one cost says, or one response of which no cost tells.
type Usage struct {
	Session  string
	Offset   events.Offset
	First    events.Offset // of the first cost with the same response, if that is another one: it counts there, for that session and run
	Source   string        // reported or computed, as a cost says; or InTurn
	Day      string        // such as 2026-03-01, in UTC
	Model    string        // "" if a turn does not say
	Response string        // the maker's id, "" if there is none
	Run      *events.RunRef
	USD      events.Amount // "": not known
	Tokens   events.Tokens
}

// Place is where in its session it counts.
func (u Usage) Place() events.Offset { return cmp.Or(u.First, u.Offset) }

// Usages yields the costs of a namespace, and what turns say that responses took which no
// cost names. Of the costs with the same response one counts, that with the most output, of
// these the last, for the session and the run of the first; of the turns with the same
// response likewise. What names no response counts by itself.
// Whether something was rewound since does not matter.
func (a Activity) Usages(ctx context.Context, namespace string) iter.Seq2[Usage, error] {
	return a.usages(ctx, "", namespace)
}

// UsagesOf yields of Usages those of some sessions.
func (a Activity) UsagesOf(ctx context.Context, namespace string, sessions ...string) iter.Seq2[Usage, error] {
	return func(yield func(Usage, error) bool) {
		for part := range slices.Chunk(sessions, maxScope) {
			args := []any{namespace}
			for _, id := range part {
				args = append(args, id)
			}
			of := ` AND session IN (?` + strings.Repeat(",?", len(part)-1) + `)`
			anonymous := a.usages(ctx, of+` AND response=''`, args...)
			named := a.usages(ctx, ` AND response<>'' AND response IN (SELECT response FROM usage WHERE namespace=?`+of+`)`, append([]any{namespace}, args...)...)
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

// usages yields what counts of those rows of a namespace for which a condition holds: of a
// response it has all or none.
func (a Activity) usages(ctx context.Context, condition string, args ...any) iter.Seq2[Usage, error] {
	return func(yield func(Usage, error) bool) {
		rows, err := a.db.QueryContext(ctx, `SELECT session, offset, source, day, model, response, run_kind, run_id, usd,
			input_tokens, output_tokens, reasoning_tokens, cache_read_tokens, cache_write_tokens
			FROM usage WHERE namespace=?`+condition+` ORDER BY response, output_tokens, offset, thread, number`, args...)
		var same responseUsage
		err = each(rows, err, func() error {
			u, err := scanUsage(rows)
			if err != nil {
				return err
			}
			if (u.Response != same.response || u.Response == "") && !same.yield(yield) {
				return errEnough
			}
			same.add(u)
			return nil
		})
		if err == nil {
			same.yield(yield)
		} else if !errors.Is(err, errEnough) {
			yield(Usage{}, a.wrap(err))
		}
	}
}

// responseUsage is what costs and turns say of one response, each better than the one
// before it.
type responseUsage struct {
	response   string
	told, paid *Usage // the last of the turns, and of the costs
	first      Usage  // of the costs, by offset
}

func (r *responseUsage) add(u Usage) {
	r.response = u.Response
	if u.Source == InTurn {
		r.told = &u
		return
	}
	if r.paid == nil || u.Offset < r.first.Offset {
		r.first = u
	}
	r.paid = &u
}

// yield yields what counts, and forgets it.
func (r *responseUsage) yield(yield func(Usage, error) bool) bool {
	u := r.told
	if r.paid != nil {
		u = r.paid
		if u.Offset != r.first.Offset {
			u.First, u.Session, u.Run = r.first.Offset, r.first.Session, r.first.Run
		}
	}
	*r = responseUsage{}
	return u == nil || yield(*u, nil)
}

// errEnough says that a caller wants no more rows.
var errEnough = errors.New("enough")

func scanUsage(rows *sql.Rows) (Usage, error) {
	var u Usage
	var run events.RunRef
	err := rows.Scan(&u.Session, offset(&u.Offset), &u.Source, &u.Day, &u.Model, &u.Response, &run.Kind, &run.ID, &u.USD,
		&u.Tokens.Input, &u.Tokens.Output, &u.Tokens.Reasoning, &u.Tokens.CacheRead, &u.Tokens.CacheWrite)
	if run != (events.RunRef{}) {
		u.Run = &run
	}
	return u, err
}

// Call is a call of a tool.
type Call struct {
	Session string
	Offset  events.Offset
	Day     string
	Model   string
	Tool    string
	Failed  bool // it ended with an error
}

// Calls yields the calls of tools in a namespace, each once: the same id in the same
// response is the same call, and where no response is named, in the same session. An error
// is that of the last call with its id before it in its session.
func (a Activity) Calls(ctx context.Context, namespace string) iter.Seq2[Call, error] {
	return func(yield func(Call, error) bool) {
		rows, err := a.db.QueryContext(ctx, `SELECT session, offset, day, model, tool, response, call, error
			FROM calls WHERE namespace=? ORDER BY call, offset, thread, number, part`, namespace)
		var same calls
		err = each(rows, err, func() error {
			var c Call
			var response, id string
			var isError bool
			if err := rows.Scan(&c.Session, offset(&c.Offset), &c.Day, &c.Model, &c.Tool, &response, &id, &isError); err != nil {
				return err
			}
			if id != same.id || id == "" {
				if !same.yield(yield) {
					return errEnough
				}
				same = calls{id: id}
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

// calls are those of one id.
type calls struct {
	id   string
	list []Call
	seen map[string]bool // by response, or session
	last map[string]int  // by session
}

func (s *calls) add(c Call, response string, isError bool) {
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
	if response != "" {
		same = "of " + response
	}
	if s.seen[same] {
		return
	}
	s.seen[same] = true
	s.last[c.Session] = len(s.list)
	s.list = append(s.list, c)
}

func (s *calls) yield(yield func(Call, error) bool) bool {
	for _, c := range s.list {
		if !yield(c, nil) {
			return false
		}
	}
	return true
}

// Day is how many turns a session got on a day, with one model.
type Day struct {
	Session string
	Day     string
	Model   string // "" for turns that name none
	Turns   int    // that were brought, whatever became of them
}

// Days yields how many turns there were in a namespace.
func (a Activity) Days(ctx context.Context, namespace string) iter.Seq2[Day, error] {
	return func(yield func(Day, error) bool) {
		rows, err := a.db.QueryContext(ctx, "SELECT session, day, model, turns FROM days WHERE namespace=? ORDER BY session, day, model", namespace)
		err = each(rows, err, func() error {
			var d Day
			if err := rows.Scan(&d.Session, &d.Day, &d.Model, &d.Turns); err != nil {
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

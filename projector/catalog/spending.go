package catalog

import (
	"context"
	"iter"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Spending is what was spent in one session on one day, with one model in one run.
type Spending struct {
	Session string
	Day     string // such as 2026-03-01
	Model   string
	Run     *events.RunRef // nil: in none
	projector.Total
}

// Spendings yields what was spent in a namespace, day by day.
func (r Reader) Spendings(ctx context.Context, namespace string) iter.Seq2[Spending, error] {
	return func(yield func(Spending, error) bool) {
		rows, err := r.db.QueryContext(ctx, `SELECT id, day, model, run_kind, run_id,
			c.usd, c.usd_real, c.costs, c.input_tokens, c.output_tokens, c.reasoning_tokens, c.cache_read_tokens, c.cache_write_tokens
			FROM costs c JOIN sessions USING(session) WHERE namespace=? ORDER BY day, id, model, run_kind, run_id`, namespace)
		if err != nil {
			yield(Spending{}, r.wrap(err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var s Spending
			var run events.RunRef
			err := rows.Scan(append([]any{&s.Session, &s.Day, &s.Model, &run.Kind, &run.ID}, totalColumns(&s.Total)...)...)
			if run != (events.RunRef{}) {
				s.Run = &run
			}
			if !yield(s, r.wrap(err)) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Spending{}, r.wrap(err))
		}
	}
}

package catalog

import (
	"context"

	"github.com/tallylog/tally/projector"
)

// progressSchema defines the table of progress in runs. Lists need not read the records.
const progressSchema = `
CREATE TABLE progress{set}(
	session INTEGER NOT NULL, run_kind TEXT NOT NULL, run_id TEXT NOT NULL, offset INTEGER NOT NULL,
	kind TEXT NOT NULL, step INTEGER NOT NULL, at TEXT NOT NULL, bytes INTEGER NOT NULL, name TEXT NOT NULL,
	PRIMARY KEY(session, run_kind, run_id, offset)) WITHOUT ROWID;
`

// Progress lists the progress in the runs of a session, in log order. Ineffective events are left out, except those of
// a worker after its claim was replaced.
func (r Reader) Progress(ctx context.Context, q projector.ProgressQuery) ([]projector.Progress, error) {
	text := `SELECT run_kind, run_id, offset, kind, step, at, bytes, name FROM progress
		WHERE session=(SELECT session FROM sessions WHERE namespace=? AND id=?) AND offset>?`
	args := []any{q.Namespace, q.Session, int64(q.After)}
	if q.Run.Kind != "" {
		text, args = text+" AND run_kind=?", append(args, q.Run.Kind)
	}
	if q.Run.ID != "" {
		text, args = text+" AND run_id=?", append(args, q.Run.ID)
	}
	text += " ORDER BY offset"
	if q.Limit > 0 {
		text, args = text+" LIMIT ?", append(args, q.Limit)
	}
	rows, err := r.db.QueryContext(ctx, text, args...)
	list, err := collect(rows, err, progressColumns)
	return list, r.wrap(err)
}

// progressColumns returns pointers to the stored columns of a progress.
func progressColumns(p *projector.Progress) []any {
	return []any{&p.Run.Kind, &p.Run.ID, offset(&p.Offset), &p.Kind, &p.Step, &p.At, &p.Bytes, &p.Name}
}

// storeProgress writes the progress in the session's runs.
func (c *Catalog) storeProgress(ctx context.Context, s *sessionRow) error {
	for i := range s.progress {
		if err := c.put(ctx, "progress", append([]any{s.key}, valuesOf(progressColumns(&s.progress[i]))...)...); err != nil {
			return err
		}
	}
	return nil
}

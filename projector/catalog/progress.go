package catalog

import (
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// progressSchema is what happened in runs, so that it can be listed without reading it.
const progressSchema = `
CREATE TABLE progress{set}(
	session INTEGER NOT NULL, run_kind TEXT NOT NULL, run_id TEXT NOT NULL, offset INTEGER NOT NULL,
	kind TEXT NOT NULL, step INTEGER NOT NULL, at TEXT NOT NULL, bytes INTEGER NOT NULL, name TEXT NOT NULL,
	PRIMARY KEY(session, run_kind, run_id, offset)) WITHOUT ROWID;
`

// What happens in a run and has no kind of its own.
const (
	RunStarted  = "started"
	RunFinished = "finished"
)

// Progress is something that happened in a run: that it was started, a progress of it, that
// it was finished.
type Progress struct {
	Run    events.RunRef
	Offset events.Offset
	Kind   string // RunStarted, RunFinished, or the kind that a progress says
	Step   int64
	At     events.Timestamp // by its producer's clock
	Bytes  int64            // of its raw value or result; 0: it has none
	Name   string           // what that calls itself: its member type, if it is a text; at most 200 bytes
}

// ProgressQuery selects what happened in the runs of a session. Fields that are zero select
// all.
type ProgressQuery struct {
	Namespace string
	Session   string
	Run       events.RunRef
	After     events.Offset
	Limit     int
}

// Progress lists what happened in the runs of a session, in the order of the log. What has
// no effect is not in it, but what a worker said after its claim went on to another is.
func (r Reader) Progress(ctx context.Context, q ProgressQuery) ([]Progress, error) {
	text := `SELECT run_kind, run_id, offset, kind, step, at, bytes, name FROM progress
		WHERE session=(SELECT session FROM sessions WHERE namespace=? AND id=?) AND offset>?`
	args := []any{q.Namespace, q.Session, int64(q.After)}
	if q.Run != (events.RunRef{}) {
		text, args = text+" AND run_kind=? AND run_id=?", append(args, q.Run.Kind, q.Run.ID)
	}
	text += " ORDER BY offset"
	if q.Limit > 0 {
		text, args = text+" LIMIT ?", append(args, q.Limit)
	}
	var list []Progress
	rows, err := r.db.QueryContext(ctx, text, args...)
	err = each(rows, err, func() error {
		var p Progress
		err := rows.Scan(p.columns()...)
		list = append(list, p)
		return err
	})
	return list, r.wrap(err)
}

// columns points to what is stored of it.
func (p *Progress) columns() []any {
	return []any{&p.Run.Kind, &p.Run.ID, offset(&p.Offset), &p.Kind, &p.Step, &p.At, &p.Bytes, &p.Name}
}

// ProgressOf returns what a fact says of its run, and whether it is something that happens
// in one.
func ProgressOf(f projector.Fact) (Progress, bool) {
	run := projector.RunOf(f.Payload)
	if run == nil {
		return Progress{}, false
	}
	p := Progress{Run: *run, Offset: f.Offset, At: f.Happened()}
	var raw events.Raw
	switch e := f.Payload.(type) {
	case *events.RunStarted:
		p.Kind, raw = RunStarted, e.Raw
	case *events.RunProgressed:
		p.Kind, p.Step, raw = e.Kind, e.Step, e.Raw
	case *events.RunFinished:
		p.Kind, raw = RunFinished, e.Result
	default:
		return p, false
	}
	members, _ := rawjson.Object(raw) // what is not an object has no name
	p.Bytes, p.Name = int64(len(raw)), cut(members.Text("type"), maxAbout)
	return p, true
}

// storeProgress writes what happened in the session's runs.
func (c *Catalog) storeProgress(ctx context.Context, s *session) error {
	for i := range s.progress {
		if err := c.put(ctx, "progress", append([]any{s.key}, values(s.progress[i].columns())...)...); err != nil {
			return err
		}
	}
	return nil
}

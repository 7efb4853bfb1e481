package catalog

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/tallylog/tally/events"
)

// JobQuery selects jobs of one namespace. A zero field selects all.
type JobQuery struct {
	Namespace string
	Status    string   // status of the session
	Stored    bool     // or the session has no status, and the job was stored
	Reached   []string // or the session has no status, was never stored, and its checkpoint of the largest step has one of these
	Limit     int      // of a page; 0: everything
	After     string   // next, as the previous page returned it
}

// jobs is the prefix of the ids of jobs. Other sessions of their kind, such as forks, have ids that a user chose.
const jobs = events.KindJob + "/"

// Job is a row of the list of jobs. It has few columns because the list may be long.
type Job struct {
	ID         string           `json:"session"`
	Status     string           `json:"status"`
	Stored     bool             `json:"-"`           // a record holds the whole job
	Reached    string           `json:"-"`           // status of the checkpoint with the highest step; of several, the last one
	Steps      int64            `json:"steps"`       // the highest number of a step
	Tokens     int64            `json:"totalTokens"` // sum of its costs; without costs, the number in the job itself
	Runs       int              `json:"runs"`
	StartedAt  events.Timestamp `json:"startedAt,omitempty"`
	FinishedAt events.Timestamp `json:"finishedAt,omitempty"`
	Head       events.Offset    `json:"head"`
}

// columns returns pointers to the listed columns of a job.
func (j *Job) columns() []any {
	return []any{&j.ID, &j.Status, &j.Stored, &j.Reached, &j.StartedAt, &j.FinishedAt, &j.Steps, &j.Tokens, &j.Runs, offset(&j.Head)}
}

// Jobs returns a page of the jobs, most recently started first, ties by id, and where the next page begins, or "".
func (r Reader) Jobs(ctx context.Context, q JobQuery) (list []Job, next string, err error) {
	text, args, err := q.sql()
	if err != nil {
		return nil, "", err
	}
	rows, err := r.db.QueryContext(ctx, text, args...)
	list, err = collect(rows, err, (*Job).columns)
	if q.Limit > 0 && len(list) > q.Limit {
		list = list[:q.Limit]
		next = list[q.Limit-1].token()
	}
	return list, next, r.wrap(err)
}

func (q JobQuery) sql() (string, []any, error) {
	where := "namespace=? AND kind=? AND id>? AND id<?"
	args := []any{q.Namespace, events.KindJob, jobs, behindPrefix(jobs)}
	if q.Status != "" {
		where += " AND (status=? OR status='' AND CASE WHEN raw_offset>0 THEN ? ELSE reached IN (" + placeholders(len(q.Reached)) + ") END)"
		args = append(args, q.Status, q.Stored)
		for _, status := range q.Reached {
			args = append(args, status)
		}
	}
	if q.After != "" {
		created, id, err := parseJobToken(q.After)
		if err != nil {
			return "", nil, err
		}
		where += " AND (created_at<? OR created_at=? AND id>?)"
		args = append(args, created, created, id)
	}
	text := `SELECT id, status, raw_offset>0, reached, created_at, finished_at, steps,
		CASE WHEN costs>0 THEN input_tokens+output_tokens+cache_read_tokens+cache_write_tokens ELSE total_tokens END, runs, head_offset
		FROM sessions WHERE ` + where + " ORDER BY created_at DESC, id"
	if q.Limit > 0 {
		text += fmt.Sprintf(" LIMIT %d", q.Limit+1)
	}
	return text, args, nil
}

// token encodes the position after a job.
func (j *Job) token() string {
	return base64.RawURLEncoding.EncodeToString([]byte(string(j.StartedAt) + "\x00" + j.ID))
}

func parseJobToken(token string) (created, id string, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	created, id, ok := strings.Cut(string(text), "\x00")
	if err != nil || !ok || !strings.HasPrefix(id, jobs) {
		return "", "", &events.InvalidError{Field: "after", Reason: fmt.Sprintf("%q is not a page token of this list", token)}
	}
	return created, id, nil
}

package catalog

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
)

// The default order of lists, and its pages and times, come from an index: nothing is sorted.
func TestLatestSessionsAreNotSorted(t *testing.T) {
	dir, sub := t.TempDir(), events.Session("", "s")
	c := New(dir, openingOf, nullLogger)
	defer c.Close()
	beginAt(t, c, 0)
	must(t, putAll(t, c, turnsOf(t, sub, "a")))
	r, err := Open(t.Context(), dir)
	must(t, err)
	defer r.Close()
	after := rowMark{1, "2026-01-01T00:00:00Z"}.token(ByActive)
	for name, q := range map[string]Query{"first page": {Limit: 20}, "later page": {Limit: 20, After: after}, "kind": {Limit: 20, Kind: "conversation"},
		"since": {Limit: 20, Since: time.Unix(0, 0)}, "all": {}} {
		q.Namespace, q.Sort = "default", ByActive
		if plan := planOf(t, r, q); strings.Contains(plan, "TEMP B-TREE") || !strings.Contains(plan, "USING INDEX") {
			t.Errorf("%s: the plan is %s", name, plan)
		}
	}
	if plan := planOf(t, r, Query{Namespace: "default", Sort: ByTurns}); !strings.Contains(plan, "TEMP B-TREE") {
		t.Errorf("an order without an index: the plan is %s", plan) // else the test cannot fail
	}
}

// planOf returns the steps of SQLite for a query.
func planOf(t *testing.T, r Reader, q Query) string {
	t.Helper()
	text, args, err := q.sql()
	must(t, err)
	rows, err := r.db.QueryContext(context.Background(), "EXPLAIN QUERY PLAN "+text, args...)
	var steps []string
	must(t, each(rows, err, func() error {
		var id, parent, unused int
		var step string
		err := rows.Scan(&id, &parent, &unused, &step)
		steps = append(steps, step)
		return err
	}))
	return strings.Join(steps, "; ")
}

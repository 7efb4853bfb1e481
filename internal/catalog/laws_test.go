package catalog

import (
	"context"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// temporary creates a directory for one round of a property.
func temporary(t *rapid.T) string {
	dir, err := os.MkdirTemp("", "catalog-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// foldRecords applies records to a catalog. With split, it stops and restarts the catalog at random, after commits and
// between them.
func foldRecords(t *rapid.T, path, set string, records testkit.Records, split bool) *Catalog {
	t.Helper()
	ctx := t.Context()
	c := newCatalog(path, set, openingOf, nullLogger)
	cursor := mustBegin(t, c)
	for i := 0; i < len(records); {
		f := projector.Decode(records[i])
		if f.Offset > cursor.Offset {
			must(t, c.Apply(ctx, f))
		}
		i++
		last := i == len(records)
		if !last && (!split || rapid.IntRange(0, 4).Draw(t, "go on") > 0) {
			continue
		}
		if !last && rapid.IntRange(0, 3).Draw(t, "crash") == 0 { // uncommitted changes are lost
			must(t, c.Close())
			c = newCatalog(path, set, openingOf, nullLogger)
			cursor = mustBegin(t, c)
			for i > 0 && records[i-1].Offset > cursor.Offset {
				i--
			}
			continue
		}
		must(t, c.Commit(ctx, projector.Cursor{Offset: f.Offset, EventID: f.ID, Recorded: f.Recorded}))
		if split && rapid.IntRange(0, 2).Draw(t, "forget") == 0 {
			cursor = mustBegin(t, c)
		}
	}
	return c
}

func mustBegin(t *rapid.T, c *Catalog) projector.Cursor {
	t.Helper()
	cursor, aside, err := c.Begin(t.Context())
	must(t, err)
	if len(aside) > 0 {
		t.Fatalf("subjects are quarantined: %v", aside)
	}
	return cursor
}

type failer interface {
	Helper()
	Fatal(...any)
	Context() context.Context
}

func must(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The tables equal those of a fold in one go, for any split into batches and any crash between them.
func TestBatchesChangeNothing(t *testing.T) {
	testkit.NotUnderRace(t)
	testkit.Long(t)
	rapid.Check(t, func(t *rapid.T) {
		records, dir := testkit.History().Draw(t, "log"), temporary(t)
		whole := foldRecords(t, filepath.Join(dir, "whole.db"), current, records, false)
		defer whole.Close()
		split := foldRecords(t, filepath.Join(dir, "split.db"), current, records, true)
		defer split.Close()
		mustEqual(t, split, whole)
	})
}

func mustEqual(t *rapid.T, have, want *Catalog) {
	t.Helper()
	for _, table := range catalogForm.tables {
		diff, err := difference(context.Background(), have.conn, want.conn, table, have.set, want.set)
		must(t, err)
		if diff != "" {
			t.Fatal(diff)
		}
	}
}

// The rows equal a load of each session.
func TestRowsAgreeWithLoad(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	rapid.Check(t, func(t *rapid.T) {
		records := testkit.History().Draw(t, "log")
		c := foldRecords(t, filepath.Join(temporary(t), FileName), current, records, true)
		defer c.Close()
		loader := &projector.Loader{Source: records}
		seen := make(map[events.Subject]bool)
		for _, rec := range records {
			if seen[rec.Subject] {
				continue
			}
			seen[rec.Subject] = true
			want, err := loader.Session(t.Context(), rec.Subject, 0)
			must(t, err)
			c.clear()
			got, err := c.session(t.Context(), rec.Subject)
			must(t, err)
			mustShow(t, got, want, spentOf(records, rec.Subject))
			if said := openedBy(t, records, loader, rec.Subject, records[len(records)-1].Offset); got.Opening != said {
				t.Fatalf("the opening of %s is %q, want %q", got.ID, got.Opening, said)
			}
			mustHaveRuns(t, c, got, want.Ledger)
			mustSum(t, c, got, spentOf(records, rec.Subject))
		}
	})
}

// openingOf returns the opening in the tests' records: the JSON of the first turn, and "" for every third record.
func openingOf(f projector.Fact) string {
	brought := f.Brings()
	for _, name := range brought.Names() {
		if turns := brought.Turns(name); len(turns) > 0 && f.Offset%3 != 0 {
			return f.Offset.String() + string(turns[0].Raw)
		}
	}
	return ""
}

// openedBy computes the opening of a session up to an offset by reading it: from the first record with an opening that
// is neither stale nor rejected; in a fork, from its inherited records first.
func openedBy(t *rapid.T, records testkit.Records, loader *projector.Loader, sub events.Subject, upto events.Offset) string {
	t.Helper()
	s, err := loader.Session(t.Context(), sub, 0)
	must(t, err)
	without := s.History.Stale()
	for _, v := range s.Ledger.Rejected {
		without = append(without, v.Offset)
	}
	for i, rec := range records.Of(sub) {
		f := projector.Decode(rec)
		if f.Offset > upto {
			break
		}
		if p, ok := f.Payload.(*events.SessionCreated); ok && i == 0 && p.Fork != nil && p.Fork.Offset < f.Offset {
			parent := events.Session(sub.Namespace, p.Fork.Session)
			if len(records.Of(parent)) > 0 && parent != sub {
				if text := openedBy(t, records, loader, parent, p.Fork.Offset); text != "" {
					return text
				}
			}
		}
		if text := openingOf(f); text != "" && !slices.Contains(without, f.Offset) {
			return text
		}
	}
	return ""
}

// spentOf computes the cost of a session from the definition. Of the costs with one response in the namespace, the one
// with the most output counts, of equals the last, for the session of the first.
func spentOf(records testkit.Records, sub events.Subject) projector.Total {
	type said struct {
		sub  events.Subject
		cost projector.Cost
	}
	var all []said
	for _, rec := range records {
		f := projector.Decode(rec)
		if p, ok := f.Payload.(*events.CostAccrued); ok {
			all = append(all, said{rec.Subject, projector.CostOf(f, p)})
		}
	}
	total := projector.Total{USD: "0"}
	for _, a := range all {
		of, counts := a, true
		for _, b := range all {
			if !events.IsUnique(a.cost.Response) || b.cost.Response != a.cost.Response || b.cost.Model != a.cost.Model || b.sub.Namespace != a.sub.Namespace {
				continue
			}
			if b.cost.Offset < of.cost.Offset {
				of = b
			}
			more := b.cost.Tokens.Output - a.cost.Tokens.Output
			counts = counts && more <= 0 && (more < 0 || b.cost.Offset <= a.cost.Offset)
		}
		if counts && of.sub == sub {
			total = total.Plus(a.cost)
		}
	}
	return total
}

func mustShow(t *rapid.T, got *sessionRow, want *projector.Session, spent projector.Total) {
	t.Helper()
	turns := 0
	for _, th := range want.Threads {
		turns += len(th.Turns)
	}
	l := want.Ledger
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"kind", got.Kind, l.Kind}, {"title", got.Title, l.Text("title")}, {"status", got.Status, l.Text("status")},
		{"project", got.Project, l.Text("project")}, {"cwd", got.CWD, l.Text("cwd")},
		{"created", got.CreatedAt, l.CreatedAt}, {"last", got.LastAt, l.LastAt},
		{"turns", got.Turns, turns}, {"runs", got.Runs, len(l.Runs)}, {"rewinds", got.Rewinds, len(l.Rewinds)},
		{"records", got.Records, l.Records}, {"late", got.Stale, len(l.Stale)}, {"void", got.Rejected, len(l.Rejected)},
		{"spent", got.Spent, spent}, {"first", got.First, want.History.First()}, {"head", got.Head, want.Offset()},
		{"live", got.Live.String(), Intervals(want.History.Live(want.Offset())).String()},
	} {
		if c.got != c.want {
			t.Fatalf("%s: %s is %v, want %v", got.ID, c.what, c.got, c.want)
		}
	}
}

func mustHaveRuns(t *rapid.T, c *Catalog, s *sessionRow, l *projector.Ledger) {
	t.Helper()
	for _, want := range l.Runs {
		got := &runRow{Run: projector.Run{Kind: want.Kind, ID: want.ID}}
		found, err := c.loadRun(t.Context(), s, got)
		must(t, err)
		if !found || got.At != want.At || got.versions != len(want.Results) || got.Note != want.Note || got.State != want.State || got.Claim != want.Claim ||
			got.Worker != want.Worker || got.Attempt != want.Attempt || got.LeaseUntil != want.LeaseUntil || got.fenced != len(want.Fenced) || got.Owner != want.Owner ||
			got.DueAt != want.DueAt || got.Setting != want.Setting || want.Parent != nil && got.parent.Run != want.Parent.Run {
			t.Fatalf("run %v is %+v, want %+v", want.Ref(), got, want)
		}
		if last := want.Last(); last != nil && (got.Last().Offset != last.Offset || got.Last().Outcome != last.Outcome) {
			t.Fatalf("run %v has the result %+v, want %+v", want.Ref(), got.Last(), last)
		}
	}
}

// mustSum compares the sum of the costs in the table.
func mustSum(t *rapid.T, c *Catalog, s *sessionRow, spent projector.Total) {
	t.Helper()
	rows, err := c.conn.QueryContext(t.Context(), "SELECT usd, costs FROM costs WHERE session=?", s.key)
	must(t, err)
	defer rows.Close()
	sum, n := new(big.Rat), 0
	for rows.Next() {
		var usd events.Amount
		var count int
		must(t, rows.Scan(&usd, &count))
		r, _ := usd.Rat()
		sum.Add(sum, r)
		n += count
	}
	must(t, rows.Err())
	want, _ := spent.USD.Rat()
	if sum.Cmp(want) != 0 || n != spent.Events {
		t.Fatalf("%s: %d costs sum to %v, want %d and %v", s.ID, n, sum, spent.Events, want)
	}
}

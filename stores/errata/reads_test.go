package errata_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/snapshot"
	"github.com/tallylog/tally/stores/errata"
)

// counting counts the messages that are read from a backend.
type counting struct {
	log.Backend
	read int
}

func (b *counting) Get(ctx context.Context, at events.Offset) (log.Message, error) {
	b.read++
	return b.Backend.Get(ctx, at)
}

func (b *counting) Last(ctx context.Context, subject string) (log.Message, error) {
	b.read++
	return b.Backend.Last(ctx, subject)
}

func (b *counting) Scan(ctx context.Context, q log.Query) (log.Cursor, error) {
	c, err := b.Backend.Scan(ctx, q)
	return &countingCursor{c, b}, err
}

type countingCursor struct {
	log.Cursor
	b *counting
}

func (c *countingCursor) Next(ctx context.Context) (log.Message, error) {
	m, err := c.Cursor.Next(ctx)
	if err == nil {
		c.b.read++
	}
	return m, err
}

// The reads of a panel's run do not grow with the session.
func TestPanelRunReads(t *testing.T) {
	ctx := t.Context()
	oneRun := func(st *tally.Store, n int) {
		e, err := errata.New(ctx, st, errata.Options{SessionID: "s", RecipeStore: errata.RecipesOf(st), Recipe: &errata.Recipe{}})
		must(t, err)
		panel, prompt := []string{"a", "b"}, fmt.Sprint("prompt ", n)
		answers := []errata.Response{answer("a", "A"), answer("b", "B")}
		_, err = e.RecordPrompt(ctx, prompt)
		saver := e.SaveCheckpoint(prompt, panel, false)
		for _, r := range answers {
			err = errors.Join(err, saver.Update(ctx, r), saver.Finish(ctx, r), e.AccumulateCost(ctx, r.ModelID, 0.25))
		}
		lengths, err2 := e.AppendHistories(ctx, panel, answers, prompt)
		must(t, errors.Join(err, err2,
			e.PersistRunState(ctx, prompt, answers, nil, []string{"read"}),
			e.PushRewindEntry(ctx, errata.RewindEntry{Prompt: prompt, HistoryLengths: lengths}),
			e.PushFileSnapshots(ctx, []errata.FileSnapshot{{Path: "f", Content: []byte("x")}}),
			e.RecordSelection(ctx, errata.SelectionParams{SelectedModelID: "a"}),
			e.UpdateLastRunNote(ctx, "note"),
			saver.End(ctx, answers)))
		_, err = e.CanRewind(ctx)
		_, err2 = e.RewindStackLen(ctx)
		c, err3 := e.LoadCheckpoint(ctx)
		if err := errors.Join(err, err2, err3); err != nil || c != nil {
			t.Fatal(c, err)
		}
	}
	reads := func(runs int) int {
		b := &counting{Backend: memlog.New(memlog.Config{})}
		st, err := tally.Open(ctx, logtest.OpenOn(t, b, log.Config{}), tally.Config{Snapshots: &snapshot.Mem{}})
		must(t, err)
		oneRun(st, 0)
		var old []events.Event // runs as calls make them, without the calls
		for i := range runs - 1 {
			run := events.RunRef{Kind: "panel", ID: fmt.Sprint("old-", i)}
			for _, p := range []events.Payload{
				&events.CostAccrued{Model: "a", USD: "0.25", Purpose: "run", Source: "reported", Run: &run},
				&events.TurnAppended{Entries: []events.Entry{{Thread: "a", Turn: events.Raw(`{"role":"user","content":"q"}`)}, {Thread: "a", Turn: events.Raw(`{"role":"assistant","content":"A"}`)}}},
				&events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`{"summary":{"models":["a"]},"content":{"prompt":"q"}}`), Schema: errata.Schema},
				&events.CheckpointSaved{ID: run.ID, Kind: events.CheckpointRewind, At: 1, Run: &run},
			} {
				e, err := events.New("urn:test", events.Session("", "s"), p)
				must(t, err)
				old = append(old, e)
			}
		}
		for batch := range slices.Chunk(old, 100) {
			_, _, err := st.AppendSeries(ctx, events.Session("", "s"), log.Any, batch...)
			must(t, err)
		}
		for info, err := range st.Subjects(ctx, events.KindSession) {
			must(t, err)
			_, err = st.Loader().Keep(ctx, info.Subject, 0, "")
			must(t, err)
		}
		oneRun(st, runs) // the log reads the ids of a subject once, to recognise existing costs
		b.read = 0
		oneRun(st, runs+1)
		return b.read
	}
	small, large := reads(10), reads(1000)
	t.Logf("%d and %d records", small, large)
	if large > 2*small {
		t.Errorf("a run reads %d records in a session of 1,000 runs, want at most twice the %d in one of 10", large, small)
	}
}

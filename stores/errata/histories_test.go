package errata_test

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/errata"
)

func answer(model, text string) errata.Response {
	return errata.Response{ModelID: model, Text: text, StopReason: errata.StopComplete}
}

func mustAppendHistories(t *testing.T, s *errata.Session, ids []string, responses []errata.Response, prompt string) errata.Appended {
	t.Helper()
	a, err := s.AppendHistories(t.Context(), ids, responses, prompt)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func mustHistories(t *testing.T, s *errata.Session) map[string][]errata.Turn {
	t.Helper()
	h, err := s.Histories(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantEqual(t *testing.T, what string, have, want any) {
	t.Helper()
	if !reflect.DeepEqual(have, want) {
		t.Errorf("%s:\ngot  %#v\nwant %#v", what, have, want)
	}
}

func turns(texts ...string) []errata.Turn {
	var list []errata.Turn
	for i, text := range texts {
		list = append(list, errata.Turn{Role: []string{"user", "assistant"}[i%2], Content: text})
	}
	return list
}

func TestPanelHistories(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		panel := []string{"a", "b"}
		t.Run("E-01 a new session is empty", func(t *testing.T) {
			s := errata.Of(st, "e01")
			if h := mustHistories(t, s); len(h) != 0 {
				t.Errorf("the histories are %v", h)
			}
			prompts, err := errata.PromptsOf(st).List(t.Context())
			if err != nil || len(prompts) != 0 {
				t.Errorf("the prompts are %v, error %v", prompts, err)
			}
			m, err := s.Metadata(t.Context())
			if err != nil || m.Runs != nil || m.PromptCount != 0 {
				t.Errorf("the metadata are %v, error %v", m, err)
			}
		})
		t.Run("E-02 reopening restores", func(t *testing.T) {
			s := errata.Of(st, "e02")
			mustAppendHistories(t, s, panel, []errata.Response{answer("a", "A"), answer("b", "B")}, "q")
			_, err := s.PersistRunState(t.Context(), errata.Run{Prompt: "q", Responses: []errata.Response{answer("a", "A")}})
			must(t, err)
			again := errata.Of(st, "e02")
			wantEqual(t, "histories", mustHistories(t, again), map[string][]errata.Turn{"a": turns("q", "A"), "b": turns("q", "B")})
			m, err := again.Metadata(t.Context())
			if err != nil || len(m.Runs) != 1 || m.FirstPrompt != "q" {
				t.Errorf("got %+v, error %v", m, err)
			}
		})
		t.Run("E-03 append gives the lengths before, for every panel member", func(t *testing.T) {
			s := errata.Of(st, "e03")
			first := mustAppendHistories(t, s, panel, []errata.Response{answer("a", "A"), {ModelID: "b", Error: "no"}}, "q")
			wantEqual(t, "first lengths", first.Lengths, map[string]int{"a": 0, "b": 0})
			second := mustAppendHistories(t, s, panel, []errata.Response{answer("a", "A2"), answer("b", "B2"), answer("c", "C")}, "q2")
			wantEqual(t, "second lengths", second.Lengths, map[string]int{"a": 2, "b": 0})
			wantEqual(t, "histories", mustHistories(t, s), map[string][]errata.Turn{"a": turns("q", "A", "q2", "A2"), "b": turns("q2", "B2")})
			if first.At == 0 || second.At != first.Ack.Last || second.Ack.Stale {
				t.Errorf("the first append returned %+v, the second %+v", first, second)
			}
		})
		t.Run("E-04 failed and text-less responses add nothing", func(t *testing.T) {
			s := errata.Of(st, "e04")
			a := mustAppendHistories(t, s, panel, []errata.Response{{ModelID: "a", Text: "x", Error: "broken"}, {ModelID: "b"}}, "q")
			wantEqual(t, "lengths", a.Lengths, map[string]int{"a": 0, "b": 0})
			if h := mustHistories(t, s); len(h) != 0 || a.Ack.Last != 0 {
				t.Errorf("%v, %+v", h, a)
			}
		})
		t.Run("E-05 set replaces wholesale", func(t *testing.T) {
			s := errata.Of(st, "e05")
			mustAppendHistories(t, s, panel, []errata.Response{answer("a", "A"), answer("b", "B")}, "q")
			want := map[string][]errata.Turn{"a": turns("summary", "ok", "q", "A"), "c": turns("x")}
			must(t, s.SetHistories(t.Context(), want))
			wantEqual(t, "histories", mustHistories(t, errata.Of(st, "e05")), want)
			must(t, s.SetHistories(t.Context(), map[string][]errata.Turn{"a": turns("summary", "ok", "new", "A")}))
			wantEqual(t, "histories", mustHistories(t, errata.Of(st, "e05")), map[string][]errata.Turn{"a": turns("summary", "ok", "new", "A")})
		})
		t.Run("E-06 truncate shortens only", func(t *testing.T) {
			s := errata.Of(st, "e06")
			for i := range 3 {
				mustAppendHistories(t, s, panel, []errata.Response{answer("a", fmt.Sprint(i)), answer("b", fmt.Sprint(i))}, "q")
			}
			must(t, s.TruncateHistories(t.Context(), map[string]int{"a": 2, "b": 99, "x": 0}))
			wantEqual(t, "histories", mustHistories(t, s), map[string][]errata.Turn{"a": turns("q", "0"), "b": turns("q", "0", "q", "1", "q", "2")})
			must(t, s.TruncateHistories(t.Context(), map[string]int{"a": 0}))
			if h := mustHistories(t, s); h["a"] != nil || len(h) != 1 {
				t.Errorf("got %v", h)
			}
			err := s.TruncateHistories(t.Context(), map[string]int{"b": -1})
			if _, ok := errors.AsType[*events.InvalidError](err); !ok {
				t.Errorf("truncate to a negative length: %v", err)
			}
		})
		t.Run("E-07 clear wipes histories and keeps runs", func(t *testing.T) {
			s := errata.Of(st, "e07")
			mustAppendHistories(t, s, panel, []errata.Response{answer("a", "A")}, "q")
			_, err := s.PersistRunState(t.Context(), errata.Run{Prompt: "q", Responses: []errata.Response{answer("a", "A")}})
			must(t, err)
			must(t, s.ClearHistories(t.Context()))
			c, err := s.Content(t.Context())
			if err != nil || c.Histories != nil || len(c.Runs) != 1 {
				t.Errorf("got %+v, error %v", c, err)
			}
		})
		t.Run("E-42 what is returned is the caller's own", func(t *testing.T) {
			s := errata.Of(st, "e42")
			mustAppendHistories(t, s, panel, []errata.Response{answer("a", "A")}, "q")
			h := mustHistories(t, s)
			h["a"][0].Content, h["b"] = "changed", turns("x")
			wantEqual(t, "histories", mustHistories(t, s), map[string][]errata.Turn{"a": turns("q", "A")})
		})
		t.Run("E-44 SaveInitialMeta", func(t *testing.T) {
			s := errata.Of(st, "e44")
			at := time.Date(2026, 3, 1, 12, 0, 0, 1, time.FixedZone("", 3600))
			meta := errata.Metadata{ID: "e44", CreatedAt: at, LastActiveAt: at, Models: panel}
			must(t, s.SaveInitialMeta(t.Context(), meta))
			meta.Models = []string{"other"}
			must(t, s.SaveInitialMeta(t.Context(), meta))
			m, err := s.Metadata(t.Context())
			if err != nil || !m.CreatedAt.Equal(at) || m.CreatedAt.Format(time.RFC3339Nano) != at.Format(time.RFC3339Nano) {
				t.Errorf("got %+v, error %v", m, err)
			}
			wantEqual(t, "models", m.Models, panel)
			id, err := errata.Resolve(t.Context(), st, "e44")
			if id != "e44" || err != nil {
				t.Errorf("got %q, error %v", id, err)
			}
		})
	})
}

// If a producer answers a question that was rewound meanwhile, its turns are stale: they are stored, but not in
// effect.
func TestPanelLate(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		panel := []string{"a"}
		ui, producer := errata.Of(st, "s"), errata.Of(st, "s")
		a := mustAppendHistories(t, ui, panel, []errata.Response{answer("a", "A")}, "q")
		_, err := ui.PushRewindEntry(t.Context(), errata.RewindEntry{At: a.At, HistoryLengths: a.Lengths, Prompt: "q"})
		must(t, err)
		mustHistories(t, producer) // begins to answer the turns after q
		_, err = ui.Rewind(t.Context(), errata.WorkTree{})
		must(t, err)
		late := mustAppendHistories(t, producer, panel, []errata.Response{answer("a", "too late")}, "q2")
		if !late.Ack.Stale {
			t.Errorf("got %+v", late)
		}
		ref, err := producer.PersistRunState(t.Context(), errata.Run{Prompt: "q2", Responses: []errata.Response{answer("a", "too late")}})
		must(t, err)
		must(t, producer.AccumulateCost(t.Context(), tally.Cost{Model: "a", USD: "0.5"}))
		if h := mustHistories(t, ui); len(h) != 0 {
			t.Errorf("the stale answer is in effect: %v", h)
		}
		rows, err := ui.Runs(t.Context())
		must(t, err)
		if row := rows[len(rows)-2]; row.Summary.Run != ref.ID || !row.Withdrawn {
			t.Errorf("the stale run is %+v", row)
		}
		costs, err := ui.Costs(t.Context())
		if err != nil || costs.Spent.Total.USD != "0.5" || costs.OnBranch.Total.USD != "0" {
			t.Errorf("got %+v, error %v", costs, err)
		}
		mustHistories(t, producer)
		if a := mustAppendHistories(t, producer, panel, []errata.Response{answer("a", "now")}, "q3"); a.Ack.Stale {
			t.Error("an append after another read is stale")
		}
	})
}

// Several handles append at the same time. Each receives the lengths right before its own turns, and a compaction of
// outdated histories is refused.
func TestPanelSeveralWriters(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		var group sync.WaitGroup
		seen := make([]int, 8)
		for i := range seen {
			group.Go(func() {
				a, err := errata.Of(st, "s").AppendHistories(t.Context(), []string{"a"}, []errata.Response{answer("a", "x")}, "q")
				if err != nil {
					t.Error(err)
					return
				}
				seen[i] = a.Lengths["a"]
			})
		}
		group.Wait()
		had := make(map[int]bool)
		for _, n := range seen {
			had[n] = true
		}
		for i := range seen {
			if !had[2*i] {
				t.Errorf("no append returned the length %d: %v", 2*i, seen)
			}
		}
		compactor := errata.Of(st, "s")
		h := mustHistories(t, compactor)
		mustAppendHistories(t, errata.Of(st, "s"), []string{"a"}, []errata.Response{answer("a", "y")}, "q")
		h["a"] = h["a"][:2]
		if err := compactor.SetHistories(t.Context(), h); !errors.Is(err, log.ErrConflict) {
			t.Fatalf("a compaction without the turns of another writer: %v", err)
		}
		h = mustHistories(t, compactor)
		mustAppendHistories(t, compactor, []string{"a"}, []errata.Response{answer("a", "own")}, "q")
		h["a"] = append(h["a"], turns("q", "own")...)[2:]
		must(t, compactor.SetHistories(t.Context(), h))
		wantEqual(t, "histories", mustHistories(t, compactor), h)
	})
}

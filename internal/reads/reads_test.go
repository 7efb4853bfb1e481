package reads

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

func TestMain(m *testing.M) { storetest.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustTurns appends turns to the main thread, each as an event of its own.
func mustTurns(t testing.TB, s *tally.Session, texts ...string) {
	t.Helper()
	for _, text := range texts {
		turn, err := json.Marshal(map[string]string{"role": "user", "content": text})
		must(t, err)
		_, err = s.AppendTurns(t.Context(), events.MainThread, turn)
		must(t, err)
	}
}

// withViews calls f with a reader whose views show the store as it is now.
func withViews(t testing.TB, st *tally.Store, f func(Reader)) {
	t.Helper()
	must(t, catalog.Folded(t.Context(), st.Log, catalog.Views(render.Opening, render.Said)[:2], slog.New(slog.DiscardHandler), func(dir string) error {
		v, err := OpenViews(t.Context(), dir)
		must(t, err)
		defer v.Close()
		f(Reader{Store: st, Views: v, Namespace: st.Namespace()})
		return nil
	}))
}

// A list read page by page has each session once, while other sessions come.
func TestPages(t *testing.T) {
	for _, order := range []catalog.Order{catalog.ByActive, catalog.ByHead, catalog.ByID, ByCost} {
		t.Run("W-21 pages by "+string(order), func(t *testing.T) {
			st := storetest.Memory(t, tally.Config{})
			var want []string
			for i := range 12 {
				id := fmt.Sprintf("s%02d", i)
				want = append(want, id)
				mustTurns(t, st.Session(id), "hello")
			}
			var got []string
			q := SessionsQuery{Query: catalog.Query{Sort: order, Limit: 5}}
			for more := true; more; {
				withViews(t, st, func(r Reader) {
					page, err := r.Sessions(t.Context(), q)
					must(t, err)
					head, err := st.Log.Head(t.Context())
					must(t, err)
					if page.AsOf != head || len(page.Items) > q.Limit || len(page.Items) != len(page.Rows) {
						t.Fatalf("a page of %d sessions as of %v, want at most %d as of %v", len(page.Items), page.AsOf, q.Limit, head)
					}
					for _, s := range page.Items {
						got = append(got, s.Session)
					}
					q.After, more = page.Next, page.Next != ""
				})
				mustTurns(t, st.Session(fmt.Sprintf("z%02d", len(got))), "new")
			}
			got = slices.DeleteFunc(got, func(id string) bool { return strings.HasPrefix(id, "z") })
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// A query with a member that is not valid is an error with the name of the member.
func TestInvalidQueries(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	mustTurns(t, st.Session("s"), "a", "b")
	for _, thread := range []string{"one", "other"} {
		_, err := st.Session("two").AppendTurns(t.Context(), thread, []byte(`1`))
		must(t, err)
	}
	_, err := st.Session("queue").Append(t.Context(), log.Any, &events.SessionCreated{Kind: events.KindQueue, CreatedAt: "2026-01-01T00:00:00Z"})
	must(t, err)
	head, err := st.Log.Head(t.Context())
	must(t, err)
	ctx := t.Context()
	withViews(t, st, func(r Reader) {
		plan, err := r.Plan(ctx, PlanQuery{Session: "s", Op: Rewind, To: "#1"})
		must(t, err)
		for want, ask := range map[string]func() error{
			"limit": func() error { _, err := r.Sessions(ctx, SessionsQuery{Query: catalog.Query{Limit: -1}}); return err },
			"sort":  func() error { _, err := r.Sessions(ctx, SessionsQuery{Query: catalog.Query{Sort: "size"}}); return err },
			"after": func() error { _, err := r.Sessions(ctx, SessionsQuery{Query: catalog.Query{After: "x"}}); return err },
			"after ": func() error {
				_, err := r.Sessions(ctx, SessionsQuery{Query: catalog.Query{Sort: ByCost, After: "x"}})
				return err
			},
			"text":     func() error { _, err := r.Search(ctx, catalog.Lookup{Text: "-x"}); return err },
			"limit ":   func() error { _, err := r.Search(ctx, catalog.Lookup{Text: "x", Limit: -1}); return err },
			"sort ":    func() error { _, err := r.Search(ctx, catalog.Lookup{Text: "x", Sort: "size"}); return err },
			"by":       func() error { _, err := r.Costs(ctx, CostsQuery{}); return err },
			"by ":      func() error { _, err := r.Costs(ctx, CostsQuery{By: "model,model"}); return err },
			"since":    func() error { _, err := r.Costs(ctx, CostsQuery{By: "model", Since: "soon"}); return err },
			"until":    func() error { _, err := r.Costs(ctx, CostsQuery{By: "model", Until: "2026-02-30"}); return err },
			"tz":       func() error { _, err := ZoneNamed("../../etc/passwd"); return err },
			"since ":   func() error { _, err := Time("since", "soon", time.Now()); return err },
			"position": func() error { _, err := r.Session(ctx, "s", "#"); return err },
			"subject":  func() error { _, err := r.Session(ctx, "", ""); return err },
			"from":     func() error { _, err := r.Turns(ctx, TurnsQuery{Session: "s", From: -1}); return err },
			"to":       func() error { _, err := r.Turns(ctx, TurnsQuery{Session: "s", From: 3, To: 2}); return err },
			"last":     func() error { _, err := r.Turns(ctx, TurnsQuery{Session: "s", Last: 1, From: 1}); return err },
			"around":   func() error { _, err := r.Turns(ctx, TurnsQuery{Session: "s", Around: 1, To: 1}); return err },
			"limit  ":  func() error { _, err := r.Turns(ctx, TurnsQuery{Session: "s", Limit: 1001}); return err },
			"thread":   func() error { _, err := r.Turns(ctx, TurnsQuery{Session: "two", Thread: ""}); return err },
			"op":       func() error { _, err := r.Plan(ctx, PlanQuery{Session: "s", Op: "erase"}); return err },
			"to ":      func() error { _, err := r.Plan(ctx, PlanQuery{Session: "s", Op: Undo, To: "#1"}); return err },
			"to  ":     func() error { _, err := r.Plan(ctx, PlanQuery{Session: "s", Op: Rewind}); return err },
			"plan.eventId": func() error {
				p := plan
				p.EventID = ""
				_, err := r.Move(ctx, MoveQuery{Session: "s", Plan: p})
				return err
			},
			"plan.to": func() error {
				p := plan
				p.To = 99
				_, err := r.Move(ctx, MoveQuery{Session: "s", Plan: p})
				return err
			},
			"plan.undoes": func() error {
				p := plan
				p.Undoes = 1
				_, err := r.Move(ctx, MoveQuery{Session: "s", Plan: p})
				return err
			},
			"plan.seen": func() error {
				p := plan
				p.Seen = 1 << 62
				_, err := r.Move(ctx, MoveQuery{Session: "s", Plan: p})
				return err
			},
			"limit   ":  func() error { _, err := r.Diff(ctx, DiffQuery{Session: "s", Limit: -1}); return err },
			"position ": func() error { _, err := r.Diff(ctx, DiffQuery{Session: "s", From: "?"}); return err },
			"limit    ": func() error { _, _, err := r.Branches(ctx, BranchesQuery{Session: "s", Limit: -1}); return err },
		} {
			err := ask()
			if invalid, ok := errors.AsType[*events.InvalidError](err); !ok || invalid.Field != strings.TrimSpace(want) || invalid.Reason == "" {
				t.Errorf("want an error of %q, got %v", want, err)
			}
		}
		for what, ask := range map[string]func() error{
			"session":   func() error { _, err := r.Session(ctx, "none", ""); return err },
			"position":  func() error { _, err := r.Session(ctx, "s", "#9"); return err },
			"turns":     func() error { _, err := r.Turns(ctx, TurnsQuery{Session: "none"}); return err },
			"thread":    func() error { _, err := r.Turns(ctx, TurnsQuery{Session: "s", Thread: "x"}); return err },
			"plan":      func() error { _, err := r.Plan(ctx, PlanQuery{Session: "none", Op: Undo}); return err },
			"move":      func() error { _, err := r.Move(ctx, MoveQuery{Session: "none", Plan: plan}); return err },
			"diff":      func() error { _, err := r.Diff(ctx, DiffQuery{Session: "none"}); return err },
			"branches":  func() error { _, _, err := r.Branches(ctx, BranchesQuery{Session: "none"}); return err },
			"move to 0": func() error { p := plan; p.To = 0; _, err := r.Move(ctx, MoveQuery{Session: "s", Plan: p}); return err },
		} {
			if err := ask(); !errors.Is(err, tally.ErrNotFound) {
				t.Errorf("%s: got %v, want ErrNotFound", what, err)
			}
		}
		if _, err := r.Plan(ctx, PlanQuery{Session: "queue", Op: Undo}); !isKind(err) {
			t.Errorf("a queue: got %v, want a KindError", err)
		}
		if _, err := r.Move(ctx, MoveQuery{Session: "queue", Plan: Plan{Op: Rewind, To: head, Seen: head, EventID: "x"}}); !isKind(err) {
			t.Errorf("a queue: got %v, want a KindError", err)
		}
	})
	if now, err := st.Log.Head(ctx); now != head || err != nil {
		t.Errorf("head %v after invalid queries, want %v: %v", now, head, err)
	}
}

func isKind(err error) bool {
	_, ok := errors.AsType[*tally.KindError](err)
	return ok
}

// Days, in a time zone, select costs.
func TestCostsOfDays(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	for i, usd := range []events.Amount{"1", "2", "4"} {
		e, err := events.New("urn:t", events.Session("", "s"), &events.CostAccrued{Model: "m", USD: usd, Purpose: "run", Source: "reported"})
		must(t, err)
		e.Time = time.Date(2026, 3, 1+i, 23, 30, 0, 0, time.UTC)
		_, err = st.Append(t.Context(), e.Subject, log.Any, e)
		must(t, err)
	}
	berlin, err := ZoneNamed("Europe/Berlin")
	must(t, err)
	withViews(t, st, func(r Reader) {
		for _, c := range []struct {
			q    CostsQuery
			want events.Amount
		}{
			{CostsQuery{}, "7"}, {CostsQuery{Since: "2026-03-02"}, "6"}, {CostsQuery{Until: "2026-03-02"}, "1"},
			{CostsQuery{Since: "2026-03-02", Until: "2026-03-03"}, "2"},
			{CostsQuery{Since: "2026-03-02", Until: "2026-03-03", Zone: berlin}, "1"},
		} {
			c.q.By = "day"
			got, err := r.Costs(t.Context(), c.q)
			if must(t, err); got.Spent.USD != c.want {
				t.Errorf("%+v: got %s USD, want %s", c.q, got.Spent.USD, c.want)
			}
		}
	})
}

// Turns returns the turns that the loaded session has.
func TestTurns(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	s := st.Session("s")
	for i := range 120 {
		mustTurns(t, s, fmt.Sprint(i))
	}
	m, err := s.PlanRewind(t.Context(), "#70", "")
	must(t, err)
	_, err = s.Move(t.Context(), m)
	must(t, err)
	mustTurns(t, s, "after")
	r := Reader{Store: st}
	whole := make(map[string][]projector.Turn)
	for _, at := range []string{"", "@120", "#3"} {
		loaded, err := s.Load(t.Context(), at)
		must(t, err)
		whole[at] = loaded.Threads.Turns(events.MainThread)
	}
	rapid.Check(t, func(t *rapid.T) {
		number := func(what string) int { return rapid.IntRange(0, 130).Draw(t, what) }
		q := TurnsQuery{Session: "s", At: rapid.SampledFrom([]string{"", "@120", "#3"}).Draw(t, "at"), Limit: number("limit")}
		all := whole[q.At]
		limit := q.Limit
		if limit == 0 {
			limit = 100
		}
		from, to := 1, len(all)
		switch rapid.IntRange(0, 2).Draw(t, "way") {
		case 0:
			q.From, q.To = number("from"), number("to")
			if q.To > 0 && q.To < q.From {
				q.To = 0
			}
			if from = max(1, q.From); q.To > 0 {
				to = min(to, q.To)
			}
		case 1:
			if q.Last = number("last"); q.Last > 0 {
				from = max(1, len(all)-min(q.Last, limit)+1)
			}
		case 2:
			if q.Around = number("around"); q.Around > 0 {
				from = max(1, min(q.Around, len(all))-limit/2)
			}
		}
		to = min(to, from+limit-1)
		got, err := r.Turns(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if got.Count != len(all) || got.Thread != events.MainThread || len(got.Turns) != max(0, to-from+1) {
			t.Fatalf("%+v: got %d of %d turns, want %d of %d", q, len(got.Turns), got.Count, max(0, to-from+1), len(all))
		}
		for i, turn := range got.Turns {
			if diff := cmp.Diff(Turn{from + i, all[from+i-1]}, turn); diff != "" {
				t.Fatalf("%+v, turn %d (-want +got):\n%s", q, i, diff)
			}
		}
		wanted := len(all)
		if q.To > 0 {
			wanted = min(wanted, q.To)
		}
		if next := got.Next; q.Last == 0 && q.Around == 0 && (next != 0) != (to < wanted && from <= wanted) || next != 0 && next != to+1 {
			t.Fatalf("%+v: got next %d behind turn %d of %d", q, next, to, wanted)
		}
	})
}

// An answer ends with the turn that makes it too large, and says where it goes on.
func TestLargeTurns(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	for range 5 {
		mustTurns(t, st.Session("s"), strings.Repeat("x", 6<<20))
	}
	r := Reader{Store: st}
	first, err := r.Turns(t.Context(), TurnsQuery{Session: "s"})
	must(t, err)
	rest, err := r.Turns(t.Context(), TurnsQuery{Session: "s", From: first.Next})
	must(t, err)
	if len(first.Turns) != 3 || first.Next != 4 || len(rest.Turns) != 2 || rest.Next != 0 {
		t.Errorf("got %d turns, next %d, then %d turns, next %d", len(first.Turns), first.Next, len(rest.Turns), rest.Next)
	}
}

// A session at its head has all its fields; at an earlier position it has those that never change, and the threads of
// then.
func TestSession(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	s := st.Session("s")
	_, err := s.Create(t.Context(), events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Title: "now"})
	must(t, err)
	mustTurns(t, s, "a", "b", "c")
	r := Reader{Store: st}
	plan, err := r.Plan(t.Context(), PlanQuery{Session: "s", Op: Rewind, To: "#2"})
	must(t, err)
	_, err = r.Move(t.Context(), MoveQuery{Session: "s", Plan: plan})
	must(t, err)
	for _, c := range []struct {
		at, title string
		turns     int
		offset    events.Offset
	}{{"", `"now"`, 2, 5}, {"head", `"now"`, 2, 5}, {"@4", "", 3, 4}, {"#1", "", 1, 2}} {
		got, err := r.Session(t.Context(), "s", c.at)
		must(t, err)
		title, _ := got.Session.Get("title")
		kind, _ := got.Session.Get("kind")
		if want := []Length{{Thread: events.MainThread, Turns: c.turns}}; !cmp.Equal(got.Threads, want) || string(title) != c.title || string(kind) != `"conversation"` || got.Offset != c.offset || got.Head != 5 {
			t.Errorf("at %q: got %+v", c.at, got)
		}
		if !got.Undo || got.Redo {
			t.Errorf("at %q: got undo %v and redo %v", c.at, got.Undo, got.Redo)
		}
	}
}

// The bins of a strip are consecutive, at most as many as asked for, and add up to the session's records.
func TestStripBins(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	for i := range 300 {
		mustTurns(t, st.Session("s"), "a")
		if i < 150 {
			mustTurns(t, st.Session("other"), "b")
		}
	}
	withViews(t, st, func(r Reader) {
		for _, bins := range []int{0, 1, 2, 3, 7} {
			got, err := r.Strip(t.Context(), StripQuery{Session: "s", Bins: bins})
			must(t, err)
			sum, before := Bin{}, events.Offset(0)
			for _, b := range got.Bins {
				if b.From < before || b.To <= b.From || b.Records == 0 {
					t.Errorf("%d bins: %+v follows %v", bins, b, before)
				}
				before = b.To
				sum.Records, sum.User, sum.Bytes = sum.Records+b.Records, sum.User+b.User, sum.Bytes+b.Bytes
			}
			if sum != (Bin{Records: 300, User: 300, Bytes: 300 * int64(len(`{"content":"a","role":"user"}`))}) || bins > 0 && len(got.Bins) > bins || got.AsOf != 450 {
				t.Errorf("%d bins: got %d with %+v as of %v", bins, len(got.Bins), sum, got.AsOf)
			}
		}
		if _, err := r.Strip(t.Context(), StripQuery{Bins: 2001}); err == nil {
			t.Error("2,001 bins: got no error")
		}
	})
}

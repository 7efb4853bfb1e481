package tally_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// The catalog and the log return the same list after any history, and it includes everything that was acknowledged
// before.
func TestSessionsLaw(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		random := rand.New(rand.NewPCG(1, 2))
		for i := range 60 {
			s := st.Session(fmt.Sprint([]string{"s/", "s/", "s/", "item/q/", "item/"}[random.IntN(5)], random.IntN(9), " é"))
			run := events.RunRef{Kind: []string{"tally", "panel"}[random.IntN(2)], ID: fmt.Sprint(random.IntN(3))}
			var err error
			switch random.IntN(7) {
			case 0:
				_, err = s.Create(t.Context(), events.SessionCreated{Kind: events.KindPanel, CreatedAt: someDay(random)})
			case 1:
				_, err = s.Append(t.Context(), log.Any, &events.RunCreated{Run: run, CreatedAt: someDay(random), Setting: events.Raw(`{}`)})
			case 6:
				said := events.Fields{{Name: "startedAt", Value: events.Raw(`"` + someDay(random) + `"`)}}
				_, err = s.Update(t.Context(), []string{events.TypeSessionUpdated}, func(*projector.Outline) ([]events.Payload, error) {
					return []events.Payload{&events.SessionUpdated{Set: said, Raw: events.Raw(`{}`)}}, nil
				})
			case 2, 3:
				_, err = s.Append(t.Context(), log.Any, &events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`{}`)})
			case 4:
				if m, err := s.PlanRewind(t.Context(), "#1", ""); err == nil {
					_, err = s.Move(t.Context(), m)
					must(t, err)
				}
			default:
				mustTurns(t, s, "a", "b")
			}
			if err != nil && !errors.Is(err, tally.ErrExists) {
				t.Fatal(err)
			}
			if i%10 != 9 {
				continue
			}
			for _, kind := range []string{"", events.KindPanel, events.KindConversation, events.KindItem, "none"} {
				var all []projector.Listed
				for info, err := range st.Subjects(t.Context(), events.KindSession) {
					must(t, err)
					if strings.HasPrefix(info.Subject.ID, "item/q/") {
						continue // the queue q lists it
					}
					l, err := st.Loader().Listed(t.Context(), info.Subject)
					must(t, err)
					all = append(all, l)
				}
				for _, q := range []projector.SessionQuery{{}, {Limit: 2}, {Newest: true}, {Newest: true, Stored: true, Limit: 3, Settings: true}} {
					q.Kind = kind
					got, err := st.SessionList(t.Context(), q)
					must(t, err)
					if diff := cmp.Diff(q.Page(all), got); diff != "" {
						t.Fatalf("after step %d, %+v (-log +catalog):\n%s", i, q, diff)
					}
				}
			}
		}
	})
}

func someDay(random *rand.Rand) events.Timestamp {
	return events.Timestamp(fmt.Sprintf("2026-01-%02dT00:00:00.000Z", 1+random.IntN(20)))
}

// A list comes from the catalog if that shows everything acknowledged, and from the log if not, or if the catalog
// cannot be read.
func TestSessionsWithoutCatalog(t *testing.T) {
	wrong := errors.New("wrong")
	var shown, read error
	st := storetest.Memory(t, tally.Config{
		Host: tally.Host{Shown: func(_ context.Context, view string, at events.Offset) error {
			if view != "catalog" || at != 2 {
				t.Errorf("waited for view %s to show %v, want catalog and 2", view, at)
			}
			return shown
		},
			Catalog: func(context.Context, projector.SessionQuery) ([]projector.Listed, error) {
				return []projector.Listed{{ID: "of the catalog"}}, read
			}},
	})
	mustTurns(t, st.Session("of the log"), "a")
	mustTurns(t, st.Session("item/q/1"), "a")
	for _, c := range []struct {
		shown, read error
		want        string
	}{{nil, nil, "of the catalog"}, {tally.ErrNotFound, nil, "of the log"}, {log.ErrFull, nil, "of the log"}, {context.DeadlineExceeded, nil, "of the log"}, {nil, wrong, "of the log"}} {
		shown, read = c.shown, c.read
		list, err := st.Sessions(t.Context(), "")
		if err != nil || len(list) != 1 || list[0].ID != c.want {
			t.Errorf("%+v: got %v, %v", c, list, err)
		}
	}
}

package tavern_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// daemonWindows keep an ended owner's belongings for an hour, and ended agents for another day.
var daemonWindows = tavern.DaemonOptions{Agents: tavern.AgentWindows{Archive: time.Hour, Purge: 24 * time.Hour}, Orphans: time.Hour}

func daemonScan(st *tally.Store) *daemon.Scan {
	return daemon.NewScan(st.Log, st.Loader())
}

// daemonView is the view of a store, caught up before each query.
type daemonView struct {
	catalog.WorkReader
	runner *projector.Runner
}

func (v daemonView) Due(ctx context.Context, what string, upto time.Time, limit int) ([]projector.Due, error) {
	if err := v.runner.CatchUp(ctx, nil); err != nil {
		return nil, err
	}
	return v.WorkReader.Due(ctx, what, upto, limit)
}

// daemonViewOf returns the view of a store. end removes it.
func daemonViewOf(t testing.TB, st *tally.Store) (v daemon.Work, end func()) {
	dir := need(os.MkdirTemp("", "work"))
	work := catalog.NewWork(dir, slog.New(slog.DiscardHandler))
	r := &projector.Runner{Log: st.Log, View: work}
	must(t, r.CatchUp(t.Context(), nil))
	reader := need(catalog.OpenWork(t.Context(), dir))
	return daemonView{reader, r}, func() { must(t, errors.Join(reader.Close(), work.Close(), os.RemoveAll(dir))) }
}

// daemonsOf returns daemons of a store.
func daemonsOf(st *tally.Store, names ...string) []daemon.Daemon {
	return need(tavern.Daemons(st, daemonWindows, names...))
}

// daemonDecides runs daemons until no decision is left. It returns their decisions, and when they want to look again.
func daemonDecides(t testing.TB, work daemon.Work, now time.Time, daemons ...daemon.Daemon) (made []daemon.Decision, next time.Time) {
	t.Helper()
	for again := true; again; {
		var all daemon.Result
		again = false
		for _, d := range daemons {
			res, err := d.Decide(t.Context(), work, now)
			must(t, errors.Join(err, res.Err))
			made, again = append(made, res.Made...), again || len(res.Made) > 0
			all.Soonest(res.Next)
		}
		next = all.Next
	}
	return made, next
}

// daemonWhats returns the decisions as text, sorted.
func daemonWhats(made []daemon.Decision) (list []string) {
	for _, m := range made {
		list = append(list, m.Subject.String()+": "+m.What)
	}
	slices.Sort(list)
	return list
}

// daemonOrphans lists subjects whose owner is gone.
func daemonOrphans(t testing.TB, work daemon.Work) (list []daemon.Due) {
	t.Helper()
	for _, what := range []string{projector.DueOrphan, projector.DueOverlay} {
		list = append(list, need(work.Due(t.Context(), what, time.Now().AddDate(100, 0, 0), 1000))...)
	}
	return list
}

// daemonBlunt is work without the offsets of records.
type daemonBlunt struct{ daemon.Work }

func (b daemonBlunt) Due(ctx context.Context, what string, upto time.Time, limit int) ([]daemon.Due, error) {
	list, err := b.Work.Due(ctx, what, upto, limit)
	for i := range list {
		list[i].About = 0
	}
	return list, err
}

package catalog

import (
	"slices"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// A session of which all content was erased is in a list only if that is asked for. A name still finds it.
func TestErasedSessionsAreLeftOut(t *testing.T) {
	at := events.Offset(0)
	l := &rewritten{}
	add := func(id string, p events.Payload) {
		at++
		rec := record(t, events.Session("", id), at, p)
		rec.ID = id + at.Padded()
		l.records = append(l.records, rec)
	}
	created := func(id string, fork *events.Fork) {
		add(id, &events.SessionCreated{Kind: events.KindOf(id), CreatedAt: "2026-01-01T00:00:00Z", Title: id, Fork: fork})
	}
	turn := func(id string) {
		add(id, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`{"role":"user","content":"cake"}`)}}})
	}
	for _, id := range []string{"all", "title", "first", "kept"} {
		created(id, nil)
		turn(id)
	}
	created("fork of all", &events.Fork{Session: "all", Offset: 2})
	created("fork of first", &events.Fork{Session: "first", Offset: 6})
	created("fork of title", &events.Fork{Session: "title", Offset: 4})
	turn("first")
	created("late fork of first", &events.Fork{Session: "first", Offset: at})
	subjects := l.erase(t, func(rec events.Record) bool {
		switch rec.Subject.ID {
		case "kept":
			return false
		case "title":
			return rec.Type == events.TypeSessionCreated
		case "first":
			return rec.Offset <= 6
		}
		return true
	})
	dir := t.TempDir()
	v := testViews[0]
	e := v.New(dir, nullLogger)
	defer e.Close()
	run := &projector.Runner{Log: l, View: e, Logger: nullLogger}
	must(t, run.CatchUp(t.Context(), nil))
	check := func(when string) {
		t.Helper()
		r, err := Open(t.Context(), dir)
		must(t, err)
		defer r.Close()
		shown := []string{"first", "fork of title", "kept", "late fork of first", "title"}
		for name, list := range map[string]func() ([]Session, error){
			"List": func() ([]Session, error) {
				p, err := r.List(t.Context(), Query{Namespace: "default"})
				return p.Sessions, err
			},
			"Beginning": func() ([]Session, error) { return r.Beginning(t.Context(), "default", "", 50) },
		} {
			sessions, err := list()
			must(t, err)
			if got := sortedIDs(sessions); !slices.Equal(got, shown) {
				t.Errorf("%s, %s: %q, want %q", when, name, got, shown)
			}
		}
		p, err := r.List(t.Context(), Query{Namespace: "default", Erased: true})
		must(t, err)
		if len(p.Sessions) != 8 || slices.ContainsFunc(p.Sessions, func(s Session) bool { return s.Erased == slices.Contains(shown, s.ID) }) {
			t.Errorf("%s: all sessions are %+v", when, p.Sessions)
		}
		if s, ok, err := r.Named(t.Context(), "default", "all"); err != nil || !ok || !s.Erased {
			t.Errorf("%s: the name finds %+v, %v, %v", when, s, ok, err)
		}
	}
	check("folded from the log")
	must(t, v.Refold(t.Context(), dir, run, subjects))
	check("folded again")
	add("all", &events.SessionUpdated{Set: events.Fields{{Name: "title", Value: events.Raw(`"new"`)}}})
	must(t, run.CatchUp(t.Context(), nil))
	r, err := Open(t.Context(), dir)
	must(t, err)
	defer r.Close()
	if s, _, err := r.Session(t.Context(), "default", "all"); err != nil || s.Erased {
		t.Errorf("with a new record it is %+v, %v", s, err)
	}
}

func sortedIDs(list []Session) (ids []string) {
	for _, s := range list {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return ids
}

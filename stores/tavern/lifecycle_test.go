package tavern_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// lifeForm is a layout without files.
type lifeForm struct{}

func (lifeForm) Name() string { return "none" }
func (lifeForm) Files(context.Context, layouts.Source, *projector.Session) iter.Seq2[layouts.File, error] {
	return func(func(layouts.File, error) bool) {}
}
func (lifeForm) RootFiles(context.Context, layouts.Source, string) iter.Seq2[layouts.File, error] {
	return func(func(layouts.File, error) bool) {}
}

var lifeBinding = events.Binding{Vendor: "claude", ID: lifeSession}

// lifeFile makes a folder of projects, with or without the transcript of the session.
func lifeFile(t *testing.T, there bool) *tavern.Transcripts {
	t.Helper()
	files := map[string][]string{"-srv-bakery/other.jsonl": {lifeLine("/srv/bakery", "user", 1, `"other"`)}}
	if there {
		files["-srv-bakery/"+lifeSession+".jsonl"] = []string{lifeLine("/srv/bakery", "user", 1, `"hi"`)}
	}
	return tavern.TranscriptsOf(lifeFolder(t, files))
}

func TestFourCases(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		// resume binds a session of its own and resumes it.
		resume := func(t *testing.T, id string, local bool, server *lifeServer) (tavern.Life, error) {
			l := tavern.LifecycleOf(st, id, lifeFile(t, local))
			must(t, l.Bind(t.Context(), lifeBinding, "begun"))
			if life := need(l.Life(t.Context())); life.Displayable() != local {
				t.Errorf("displayable: %v", life.Displayable())
			}
			return l.Resume(t.Context(), server.probe)
		}
		t.Run("D-27 local and server", func(t *testing.T) {
			life, err := resume(t, "agent/1", true, &lifeServer{has: true})
			if err != nil || life.Source() != tavern.DirectFile || !strings.HasPrefix(life.Resumable().String(), "not known, last success at 2") {
				t.Errorf("%v, from %q, resumable: %s", err, life.Source(), life.Resumable())
			}
		})
		t.Run("D-27 local only", func(t *testing.T) {
			life, err := resume(t, "agent/2", true, &lifeServer{})
			expired, ok := errors.AsType[*tavern.ExpiredError](err)
			if !ok || expired.Binding.ID != lifeSession || !strings.Contains(err.Error(), "has expired") || !life.Displayable() {
				t.Errorf("%v, displayable: %v", err, life.Displayable())
			}
		})
		t.Run("D-27 server only", func(t *testing.T) {
			life, err := resume(t, "agent/3", false, &lifeServer{has: true})
			if missing, ok := errors.AsType[*tavern.NoTranscriptError](err); !ok || missing.Archived || life.Displayable() {
				t.Errorf("%v, displayable: %v", err, life.Displayable())
			}
		})
		t.Run("D-27 neither", func(t *testing.T) {
			_, err := resume(t, "agent/4", false, &lifeServer{})
			if _, ok := errors.AsType[*tavern.GoneError](err); !ok || !errors.Is(err, tally.ErrNotFound) {
				t.Error(err)
			}
		})
		t.Run("D-26 the store has nothing of it", func(t *testing.T) {
			l := tavern.LifecycleOf(st, "claude/-srv-bakery/"+lifeSession, lifeFile(t, true))
			life, err := l.Resume(t.Context(), (&lifeServer{has: true}).probe)
			if err != nil || life.Source() != tavern.DirectFile || life.Archive != "" || life.Resumable().LastSuccess.IsZero() {
				t.Errorf("%v, %+v", err, life)
			}
			_, err = l.Resume(t.Context(), (&lifeServer{}).probe)
			if _, ok := errors.AsType[*tavern.ExpiredError](err); !ok {
				t.Error(err)
			}
			if _, err := st.Session("claude/-srv-bakery/"+lifeSession).Load(t.Context(), ""); !errors.Is(err, tally.ErrNotFound) {
				t.Errorf("asking made the session: %v", err)
			}
		})
		t.Run("D-27 nobody knows it", func(t *testing.T) {
			l := tavern.LifecycleOf(st, "agent/5", lifeFile(t, true))
			_, none := l.Life(t.Context())
			_, resumed := l.Resume(t.Context(), (&lifeServer{has: true}).probe)
			if !errors.Is(none, tally.ErrNotFound) || !errors.Is(resumed, tally.ErrNotFound) {
				t.Errorf("%v, %v", none, resumed)
			}
			must1(st.Session("agent/5").Create(t.Context(), events.SessionCreated{Kind: "agent", CreatedAt: "2026-08-22T10:00:00Z"}))
			_, err := l.Resume(t.Context(), (&lifeServer{has: true}).probe)
			if _, ok := errors.AsType[*tavern.UnboundError](err); !ok {
				t.Error(err)
			}
		})
		t.Run("D-27 the vendor cannot be asked", func(t *testing.T) {
			_, err := resume(t, "agent/6", true, &lifeServer{deaf: true})
			life := need(tavern.LifecycleOf(st, "agent/6", nil).Life(t.Context()))
			if _, ok := errors.AsType[*tavern.ProbeError](err); !ok || len(life.Log) != 1 {
				t.Errorf("%v, and the log is %+v", err, life.Log)
			}
		})
		t.Run("D-42 a refusal is kept with its reason", func(t *testing.T) { lifeRefused(t, st) })
		t.Run("D-36 an archive outlives the vendor's file", func(t *testing.T) { lifeArchived(t, st) })
	})
}

func lifeRefused(t *testing.T, st *tally.Store) {
	l := tavern.LifecycleOf(st, "agent/7", lifeFile(t, true))
	must(t, l.Bind(t.Context(), lifeBinding, "begun"))
	if got := need(l.Life(t.Context())).Resumable(); got.LastSuccess.IsZero() || !got.Refused.IsZero() || !strings.HasPrefix(got.String(), "not known, last success at ") {
		t.Errorf("without a date of expiry: %s", got)
	}
	server := &lifeServer{}
	if _, err := l.Resume(t.Context(), server.probe); err == nil {
		t.Fatal("a refused session was resumed")
	}
	again := need(tavern.LifecycleOf(st, "agent/7", lifeFile(t, true)).Life(t.Context()))
	if got := again.Resumable(); got.Refused.IsZero() || got.Reason != "session "+lifeSession+" has expired" || !strings.Contains(got.String(), "refused at ") {
		t.Errorf("resumable after the refusal: %s", got)
	}
	must(t, l.Break(t.Context(), "a new session"))
	must(t, l.Bind(t.Context(), events.Binding{Vendor: "claude", ID: "another"}, "in its place"))
	must(t, l.End(t.Context(), "done"))
	life := need(l.Life(t.Context()))
	var log []string
	for _, e := range life.Log {
		log = append(log, e.Event+" "+e.Session+" "+e.Reason)
	}
	want := "started " + lifeSession + " begun, expired " + lifeSession + " session " + lifeSession + " has expired, break  a new session, started another in its place, ended another done"
	if got := strings.Join(log, ", "); got != want {
		t.Errorf("the log is %s", got)
	}
	if life.Binding.ID != "" || !strings.HasPrefix(life.Resumable().String(), "no: ") {
		t.Errorf("after the end the session is bound to %+v: %s", life.Binding, life.Resumable())
	}
}

func lifeArchived(t *testing.T, st *tally.Store) {
	dir := lifeFolder(t, map[string][]string{"-srv-bakery/" + lifeSession + ".jsonl": {lifeLine("/srv/bakery", "user", 1, `"hi"`), lifeLine("/srv/bakery", "assistant", 2, `"ho"`)}})
	lifeImport(t, st, dir)
	transcripts := tavern.TranscriptsOf(dir)
	id := "claude/-srv-bakery/" + lifeSession
	server := &lifeServer{has: true}
	if life, err := tavern.LifecycleOf(st, id, transcripts).Resume(t.Context(), server.probe); err != nil || life.Source() != tavern.DirectFile {
		t.Errorf("with the file: error %v, from %q", err, life.Source())
	}
	lifeImport(t, st, dir) // entries about the session do not hinder an import
	must(t, os.Remove(filepath.Join(dir, "-srv-bakery", lifeSession+".jsonl")))
	must(t, tavern.LifecycleOf(st, "agent/8", transcripts).Bind(t.Context(), lifeBinding, "begun"))
	for _, session := range []string{id, "agent/8"} {
		l := tavern.LifecycleOf(st, session, transcripts)
		life := need(l.Life(t.Context()))
		if !life.Displayable() || life.Source() != "archive" || life.Archive != id {
			t.Errorf("%s: displayable from %q, in %q", session, life.Source(), life.Archive)
		}
		asked := server.asked
		_, err := l.Resume(t.Context(), server.probe)
		if missing, ok := errors.AsType[*tavern.NoTranscriptError](err); !ok || !missing.Archived || server.asked != asked {
			t.Errorf("%s: got the error %v", session, err)
		}
		if got := life.Resumable(); got.Never == "" {
			t.Errorf("%s: resumable: %s", session, got)
		}
	}
	if turns := need(st.Session(id).Load(t.Context(), "")).Threads["main"]; len(turns.Turns) != 2 {
		t.Errorf("the archive has %d turns", len(turns.Turns))
	}
}

// A clock that is a year ahead ends no session; only the log's records do.
func TestLifeTime(t *testing.T) {
	t.Run("D-64 a clock set forward", func(t *testing.T) {
		now := time.Now()
		l := need(log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{Now: func() time.Time { return now }}))
		st := need(tally.Open(t.Context(), l, tally.Config{}))
		defer st.Close()
		life := tavern.LifecycleOf(st, "agent/1", lifeFile(t, true))
		b := lifeBinding
		b.ExpiresAt = events.TimestampOf(now.Add(time.Hour))
		must(t, life.Bind(t.Context(), b, "begun"))
		now = now.AddDate(1, 0, 0)
		if got := need(life.Life(t.Context())).Resumable(); got.Over || got.Expires.IsZero() {
			t.Errorf("resumable: %s", got)
		}
		b.ExpiresAt = events.TimestampOf(now.AddDate(-2, 0, 0))
		must(t, life.Bind(t.Context(), b, "begun"))
		if got := need(life.Life(t.Context())).Resumable(); !got.Over || !strings.Contains(got.String(), "has passed") {
			t.Errorf("resumable: %s", got)
		}
		if _, err := life.Resume(t.Context(), (&lifeServer{has: true}).probe); err != nil {
			t.Errorf("resume an expired session that the vendor still has: %v", err)
		}
	})
}

// lifeBound binds a session again as soon as a call looks for its file.
type lifeBound struct {
	t  *testing.T
	st *tally.Store
	id string
}

func (l lifeBound) File(ctx context.Context, _ events.Binding) (string, error) {
	must(l.t, tavern.LifecycleOf(l.st, l.id, nil).Bind(ctx, events.Binding{Vendor: "claude", ID: "third"}, ""))
	return "", tally.ErrNotFound
}

// If a session is bound again while End runs, End ends the newer one: log and binding agree.
func TestLifeEndedWhileBound(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	for n := range 20 {
		id := "agent/" + strings.Repeat("x", n+1)
		l := tavern.LifecycleOf(st, id, nil)
		must(t, l.Bind(t.Context(), events.Binding{Vendor: "claude", ID: "first"}, ""))
		var both sync.WaitGroup
		both.Go(func() { must(t, tavern.LifecycleOf(st, id, lifeBound{t, st, id}).End(t.Context(), "")) })
		both.Go(func() { must(t, l.Bind(t.Context(), events.Binding{Vendor: "claude", ID: "second"}, "")) })
		both.Wait()
		life, bound := need(l.Life(t.Context())), ""
		for _, e := range life.Log {
			switch {
			case e.Event == "started":
				bound = e.Session
			case e.Session != bound:
				t.Fatalf("round %d: %q was ended, but %q is bound", n, e.Session, bound)
			default:
				bound = ""
			}
		}
		if life.Binding.ID != bound {
			t.Fatalf("round %d: %q is bound, but the log has %q", n, life.Binding.ID, bound)
		}
	}
}

// A change that is lost, or stored without an answer, is repeated and stored once.
func TestLifeFaults(t *testing.T) {
	storetest.EachFault(t, func(t *testing.T, st *tally.Store, call storetest.Call) {
		l, server := tavern.LifecycleOf(st, "agent/1", lifeFile(t, true)), &lifeServer{has: true}
		call("bind", 1, func() error { return l.Bind(t.Context(), lifeBinding, "begun") })
		call("resume", 1, func() error { _, err := l.Resume(t.Context(), server.probe); return err })
		call("break", 1, func() error { return l.Break(t.Context(), "why") })
		call("end", 1, func() error { return l.End(t.Context(), "done") })
		p := tavern.PersonalOf(st)
		call("a session id", 1, func() error { return p.SetProjectSession(t.Context(), "/a", "one") })
		call("an agent", 1, func() error { return p.AddAgent(t.Context(), tavern.PersistedAgent{ID: "a"}) })
		call("no session id", 1, func() error { return p.ClearProjectSession(t.Context(), "/a") })
	})
}

package cmd_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/metrics"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/view"
)

// A view that a program brings is shown by Wait, status, rebuild, verify and metrics, whether the program owns the store
// or is attached to it.
func TestOwnViews(t *testing.T) {
	t.Run("owner", func(t *testing.T) {
		store := filepath.Join(t.TempDir(), "store")
		testOwnViews(t, store, func(st *tally.Store) string {
			m := metrics.New()
			m.Watch(st, func() (int64, uint64, error) { return 0, 0, errors.New("no disk") })
			answer := httptest.NewRecorder()
			m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
			return answer.Body.String()
		})
	})
	t.Run("attached", func(t *testing.T) {
		store := filepath.Join(t.TempDir(), "store")
		c := command(t.Context(), store, "tally", "serve", "-o", "jsonl", "--metrics", "127.0.0.1:0")
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Wait() }) // its context ends before
		var ready struct{ Metrics string }
		if err := json.NewDecoder(out).Decode(&ready); err != nil {
			t.Fatal(err)
		}
		testOwnViews(t, store, func(*tally.Store) string {
			answer, err := http.Get(ready.Metrics)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		})
	})
}

func testOwnViews(t *testing.T, store string, gauges func(*tally.Store) string) {
	vote := events.Define[string]("com.acme.vote.v1", events.WithThread)
	var isMended atomic.Bool
	votes := view.Fold[[]string]{Name: "votes", Version: 3, Types: []events.Type{vote.Type}, Apply: func(s *[]string, f projector.Fact) error {
		v, _, err := vote.In(f.Event)
		if v == "bad" && !isMended.Load() {
			return errors.New("a bad vote")
		}
		*s = append(*s, v)
		return err
	}}
	st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: t.TempDir(), Backend: "local", Store: store, Views: []view.View{votes.View()}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	cast := func(id, choice string) events.Offset {
		e, err := vote.New(events.Session("", id), choice)
		if err != nil {
			t.Fatal(err)
		}
		ack, err := st.Append(t.Context(), e.Subject, log.Any, e)
		if err != nil {
			t.Fatal(err)
		}
		return ack.Last
	}
	status := func() (v struct {
		View                 string
		Offset               events.Offset
		Version, Keeper      int
		Kept                 bool
		Quarantined          []struct{ Subject, Reason string }
		LagEvents            int
		Error                string
		LagSeconds           float64
		Event, Updated, Rest string
	}) {
		t.Helper()
		var s struct{ Views []json.RawMessage }
		if err := json.Unmarshal([]byte(output(t, nil, store, "tally", "status", "-o", "json")), &s); err != nil || len(s.Views) != 4 {
			t.Fatalf("got %d views, %v, want those of tally and votes", len(s.Views), err)
		}
		if err := json.Unmarshal(s.Views[3], &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	last := cast("a", "one")
	t.Run("X-04 wait", func(t *testing.T) {
		if err := st.Wait(t.Context(), "votes", last); err != nil {
			t.Fatal(err)
		}
		if s, at, err := votes.Get(t.Context(), st, events.Session("", "a")); err != nil || at < last || strings.Join(s, " ") != "one" {
			t.Errorf("got %q at %v, %v", s, at, err)
		}
	})
	t.Run("X-04 status", func(t *testing.T) {
		if v := status(); v.View != "votes" || v.Version != 3 || !v.Kept || v.Keeper != os.Getpid() || v.Offset < last || v.Error != "" || len(v.Quarantined) != 0 {
			t.Errorf("got %+v, want version 3, kept by process %d, at %v", v, os.Getpid(), last)
		}
	})
	t.Run("X-04 verify", func(t *testing.T) {
		if text := output(t, nil, store, "tally", "verify"); !strings.Contains(text, "votes: not compared") || !strings.Contains(text, "all views match") {
			t.Errorf("got %s", text)
		}
		if found, err := st.VerifyViews(t.Context()); err != nil || len(found) > 0 {
			t.Errorf("VerifyViews finds %v, %v", found, err)
		}
	})
	t.Run("X-04 quarantine", func(t *testing.T) {
		cast("b", "bad")
		last = cast("a", "two")
		if err := st.Wait(t.Context(), "votes", last); err != nil {
			t.Fatal(err)
		}
		if v := status(); len(v.Quarantined) != 1 || v.Quarantined[0].Subject != "session/b" || v.Quarantined[0].Reason != "a bad vote" {
			t.Errorf("got %+v, want session b in quarantine", v)
		}
	})
	t.Run("X-04 metrics", func(t *testing.T) {
		text := gauges(st)
		for _, want := range []string{`tally_view_quarantined_subjects{view="votes"} 1`, `tally_view_lag_events{view="votes"} 0`, `tally_view_lag_seconds{view="votes"} 0`} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("metrics lack %s:\n%s", want, text)
			}
		}
	})
	t.Run("X-04 retry", func(t *testing.T) {
		isMended.Store(true)
		list, err := st.Retry(t.Context(), "votes")
		if err != nil || len(list) != 1 || list[0].Subject.ID != "b" {
			t.Errorf("Retry mends %v, %v, want session b", list, err)
		}
		last = cast("b", "three")
		if err := st.Wait(t.Context(), "votes", last); err != nil {
			t.Fatal(err)
		}
		if s, _, err := votes.Get(t.Context(), st, events.Session("", "b")); err != nil || strings.Join(s, " ") != "bad three" {
			t.Errorf("got %q, %v", s, err)
		}
	})
	t.Run("X-04 rebuild", func(t *testing.T) {
		for args, want := range map[string]string{"votes": "call Store.Rebuild", "nope": "there is no view", "catalog --drop": "no program has brought", "--drop": "needs the name"} {
			text, err := command(t.Context(), store, "tally", append([]string{"rebuild"}, strings.Fields(args)...)...).CombinedOutput()
			if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != 2 || !strings.Contains(string(text), want) {
				t.Errorf("rebuild %s: got %v, %s", args, err, text)
			}
		}
		if text := output(t, nil, store, "tally", "rebuild", "votes", "--drop"); !strings.HasPrefix(text, "Removed votes") {
			t.Errorf("got %s", text)
		}
		last = cast("c", "four")
		if err := st.Wait(t.Context(), "votes", last); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]string{"a": "one two", "b": "bad three", "c": "four"} {
			if s, _, err := votes.Get(t.Context(), st, events.Session("", id)); err != nil || strings.Join(s, " ") != want {
				t.Errorf("%s: got %q, %v, want %q", id, s, err, want)
			}
		}
		if err := st.Rebuild(t.Context(), "votes"); err != nil {
			t.Error(err)
		}
	})
}

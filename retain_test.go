package tally_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon/runner"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// The daemon forgets sessions that are older than the rules say, by the log's time, and what work needs stays.
func TestRetainDaemon(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{Now: clock}), log.Config{Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	var erased []string // subjects of each plan
	var refusal error
	c := tally.Config{}
	c.Host.Erase = func(_ context.Context, p erasure.Plan) error {
		var names []string
		for _, sub := range p.Subjects {
			names = append(names, sub.Namespace+" "+sub.ID)
		}
		erased = append(erased, strings.Join(names, ", ")+": "+p.Reason)
		return refusal
	}
	st, err := tally.Open(t.Context(), l, c)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	created := func(namespace, id, kind string) {
		t.Helper()
		in, err := st.In(namespace)
		if err == nil {
			_, err = in.Session(id).Create(t.Context(), events.SessionCreated{Kind: kind, CreatedAt: "2026-03-01T12:00:00Z", Title: id})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const day = 24 * time.Hour
	for _, kind := range []string{events.KindQueue, events.KindInbox, events.KindFlow, events.KindLock, events.KindAgent, events.KindItem} {
		created("default", kind+"/w", kind)
	}
	created("default", "old", events.KindConversation)
	created("default", "job/old", events.KindJob)
	created("acme", "old", events.KindTranscript)
	created("kept", "old", events.KindConversation)
	now = now.Add(6 * day)
	created("acme", "middle", events.KindConversation)
	now = now.Add(5 * day)
	created("default", "new", events.KindConversation)
	d := runner.Retain(st, []tally.Retention{{Sessions: 10 * day}, {Namespace: "acme", Sessions: 4 * day}, {Namespace: "kept"}})
	want := "[acme middle, acme old: older than 96h0m0s default old: older than 240h0m0s]"
	t.Run("X-17 due by the log's time", func(t *testing.T) {
		erased = nil
		res, err := d.Decide(t.Context(), nil, now)
		if err != nil || fmt.Sprint(erased) != want {
			t.Errorf("it forgot %v, %v, want %s", erased, err, want)
		}
		if len(res.Made) != 2 || res.Failed != 0 || !res.Next.Equal(now.Add(day)) || res.Made[0].Subject.Kind != erasure.KindReceipt {
			t.Errorf("the result is %+v", res)
		}
	})
	t.Run("X-17 a dry run lists the same", func(t *testing.T) {
		due, err := st.Due(t.Context(), []tally.Retention{{Sessions: 10 * day}, {Namespace: "acme", Sessions: 4 * day}, {Namespace: "kept"}})
		if err != nil {
			t.Fatal(err)
		}
		var would []string
		for _, what := range due {
			what.Dry = true
			r, err := st.Forget(t.Context(), what)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, s := range r.Subjects {
				names = append(names, s.Subject.Namespace+" "+s.Subject.ID)
			}
			would = append(would, strings.Join(names, ", ")+": "+r.Reason)
		}
		if got := fmt.Sprint(would); got != want {
			t.Errorf("a dry run lists %s, want %s", got, want)
		}
	})
	t.Run("X-17 a failure is reported, and others go on", func(t *testing.T) {
		erased, refusal = nil, log.ErrFull
		res, err := d.Decide(t.Context(), nil, now)
		if err != nil || res.Failed != 2 || len(res.Made) > 0 || !errors.Is(res.Err, log.ErrFull) || fmt.Sprint(erased) != want {
			t.Errorf("the result is %+v, %v after %v", res, err, erased)
		}
	})
}

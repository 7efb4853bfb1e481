package tally_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// After its release, a claim appends nothing more, whatever its holder had appended by it, also while nobody else has the lease.
func TestReleasedClaim(t *testing.T) {
	st, err := tally.Open(t.Context(), memoryLog(t), tally.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	note := func() log.Part {
		return log.Part{Subject: events.Session("", "s"), Events: []events.Event{{Source: "urn:t", Type: "com.example.note"}}}
	}
	for appends := range 3 {
		c, err := st.Documents().Lease(t.Context(), "doc", "x", "ann", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for range appends {
			if _, err := c.Append(t.Context(), note()); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = c.Append(t.Context(), note())
		if _, over := errors.AsType[*tally.FencedError](err); !over {
			t.Errorf("after %d appends and the release, an append by the claim: got %v, want that the claim is over", appends, err)
		}
	}
}

func memoryLog(t *testing.T) *log.Log {
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The clock that dates records may be behind the newest record: then a lease lasts from the record's time on.
func TestLeaseBehindTheLog(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Minute, tally.ClockBound} {
		clock := time.Now().Truncate(time.Second).Add(ahead) // of an owner that was ahead
		now := func() time.Time { return clock }
		l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{Now: now}), log.Config{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		st, err := tally.Open(t.Context(), l, tally.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		mustSave(t, st.Documents(), "doc", "x", text("x"))
		clock = clock.Add(-ahead)
		if _, err := st.Documents().Lease(t.Context(), "doc", "x", "ann", 30*time.Second); err != nil {
			t.Fatal(err)
		}
		if lease, err := st.Documents().Holder(t.Context(), "doc", "x"); err != nil || lease.Holder != "ann" {
			t.Errorf("the log is %v ahead of the clock: the lease that was just taken is %+v, %v", ahead, lease, err)
		}
	}
}

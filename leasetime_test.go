package tally_test

import (
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

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

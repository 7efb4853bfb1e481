package tally_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// sharedMem is a backend that a log does not close.
type sharedMem struct{ *memlog.Backend }

func (sharedMem) Close() error { return nil }

// Each owner dates records by its own clock. If the clock of an earlier owner was ahead by more than ClockBound, its
// records end no document or lease for the next owners. In a store without new records nothing ends.
func TestLogTime(t *testing.T) {
	start := time.Now().Truncate(time.Second)
	owner, own := start, start // clocks of the owner, which dates records, and of this process
	mem := memlog.New(memlog.Config{Now: func() time.Time { return owner }})
	said := new(bytes.Buffer)
	begin := func() *tally.Store {
		t.Helper()
		l, err := log.OpenOn(t.Context(), sharedMem{mem}, log.Config{Now: func() time.Time { return own }})
		if err != nil {
			t.Fatal(err)
		}
		st, err := tally.Open(t.Context(), l, tally.Config{Logger: slog.New(slog.NewTextHandler(said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}
	write := func(st *tally.Store, id string, until time.Time) {
		t.Helper()
		if _, err := st.Documents().Save(t.Context(), "doc", id, tally.Write{Data: []byte("{}"), ExpiresAt: until}); err != nil {
			t.Fatal(err)
		}
	}
	found := func(st *tally.Store) bool {
		t.Helper()
		_, err := st.Documents().Read(t.Context(), "doc", "a")
		if err != nil && !strings.Contains(err.Error(), "not found") {
			t.Fatal(err)
		}
		return err == nil
	}
	holder := func(st *tally.Store) string {
		t.Helper()
		l, err := st.Documents().Holder(t.Context(), "doc", "a")
		if err != nil {
			t.Fatal(err)
		}
		return l.Holder
	}
	st := begin()
	write(st, "a", start.Add(24*time.Hour))
	if _, err := st.Documents().Lease(t.Context(), "doc", "a", "ann", time.Hour); err != nil {
		t.Fatal(err)
	}
	t.Run("B-09 a store at rest", func(t *testing.T) {
		own = start.Add(48 * time.Hour) // the reader's clock is two days ahead
		owner = own
		if st := begin(); !found(st) || holder(st) != "ann" {
			t.Error("the document or its lease ended in a store without new records")
		}
		own, owner = start, start
	})
	for _, c := range []struct {
		ahead time.Duration // of the owner that writes, before the next one
		over  bool
	}{{tally.ClockBound - time.Second, true}, {tally.ClockBound, true}, {tally.ClockBound + time.Second, false}, {48 * time.Hour, false}} {
		t.Run("B-09 an owner that is ahead by "+c.ahead.String(), func(t *testing.T) {
			now := start.Add(24*time.Hour + time.Second - c.ahead) // by the owner's clock, the record comes a second after the end
			owner, own = now.Add(c.ahead), now.Add(c.ahead)
			wrong := begin()
			write(wrong, "other", time.Time{})
			asleep := begin() // asks again after the next owner has written
			if found(wrong) || found(asleep) {
				t.Error("the document exists after its end by the owner's clock")
			}
			owner, own = now, now // the next owner
			said.Reset()
			for _, st := range []*tally.Store{begin(), wrong} {
				if found(st) == c.over {
					t.Errorf("the document has expired: %v, want %v", !c.over, c.over)
				}
			}
			if warned := strings.Contains(said.String(), "ahead of the clock"); warned == c.over {
				t.Errorf("warnings %q, want one: %v", said, !c.over)
			}
			own = start.Add(-time.Hour) // a reader whose clock is behind asks for the owner's
			if found(begin()) == c.over {
				t.Error("the clock of a reader decided whether the document has expired")
			}
			own = now
			write(begin(), "other", time.Time{}) // with a new record both clocks agree
			for _, st := range []*tally.Store{begin(), asleep} {
				if isOver := st == asleep && c.over; found(st) != now.Before(start.Add(24*time.Hour)) && !isOver { // its time never goes back
					t.Error("a record of the next owner did not set the log's time")
				}
			}
		})
	}
}

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

// sharedMem outlives the logs on it.
type sharedMem struct{ *memlog.Backend }

func (sharedMem) Close() error { return nil }

// Every owner dates records by its own clock. A record of one whose clock was ahead ends
// nothing for the next ones; a store at rest goes by its newest record.
func TestLogTime(t *testing.T) {
	start := time.Now().Truncate(time.Second)
	owner, own := start, start // what dates records, and this process
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
		own = start.Add(48 * time.Hour) // a reader that is ahead, and a rest of two days
		owner = own
		if st := begin(); !found(st) || holder(st) != "ann" {
			t.Error("what nobody dated is over")
		}
		own, owner = start, start
	})
	for _, c := range []struct {
		ahead time.Duration // of the owner that writes, before the next one
		over  bool
	}{{tally.ClockBound - time.Second, true}, {tally.ClockBound, true}, {tally.ClockBound + time.Second, false}, {48 * time.Hour, false}} {
		t.Run("B-09 an owner that is ahead by "+c.ahead.String(), func(t *testing.T) {
			now := start.Add(24*time.Hour + time.Second - c.ahead) // the record is dated a second after the end
			owner, own = now.Add(c.ahead), now.Add(c.ahead)
			wrong := begin()
			write(wrong, "other", time.Time{})
			if found(wrong) {
				t.Error("by its own clock it is over")
			}
			owner, own = now, now // the next owner
			said.Reset()
			for _, st := range []*tally.Store{begin(), wrong} {
				if found(st) == c.over {
					t.Errorf("over: %v", !c.over)
				}
			}
			if warned := strings.Contains(said.String(), "ahead of the clock"); warned == c.over {
				t.Errorf("it says %q", said)
			}
			own = start.Add(-time.Hour) // a reader that is behind asks the owner's clock
			if found(begin()) == c.over {
				t.Error("a reader's clock decides")
			}
			own = now
			write(begin(), "other", time.Time{}) // and with a record both agree
			if st := begin(); found(st) != now.Before(start.Add(24*time.Hour)) {
				t.Error("a record of the next owner does not count")
			}
		})
	}
}

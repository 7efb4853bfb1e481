package tally_test

import (
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// counter counts how often it is closed.
type counter struct{ closed int }

func (c *counter) Close() { c.closed++ }

func TestKept(t *testing.T) {
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := tally.Open(t.Context(), l, tally.Config{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := st.In("other")
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	keep := func(st *tally.Store) *counter {
		return tally.Kept(st, func() *counter { made++; return new(counter) })
	}
	first := keep(st)
	if keep(other) != first || keep(st.Unshown()) != first || made != 1 {
		t.Errorf("%d values were made of one type, want 1", made)
	}
	if err := st.Close(); err != nil || first.closed != 1 {
		t.Errorf("close of the store: %v, the value was closed %d times, want 1", err, first.closed)
	}
	if late := keep(st); late == first || late.closed != 1 {
		t.Errorf("a new value of a closed store was closed %d times, want 1", late.closed)
	}
}

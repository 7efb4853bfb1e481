package storetest

import (
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
)

// Call makes a call, and counts the events that it appended, to any subjects.
type Call func(name string, count int, do func() error)

// EachFault runs test on a store that loses every other publication, and on one that loses every acknowledgement. Each
// call must succeed, and its events must be stored once.
func EachFault(t *testing.T, test func(t *testing.T, st *tally.Store, call Call)) {
	t.Helper()
	for _, fault := range []logtest.Fault{logtest.Dropped, logtest.AckLost} {
		t.Run(fault.String(), func(t *testing.T) {
			tries := 0
			st := Faulty(t, func() logtest.Fault {
				if tries++; fault == logtest.Dropped && tries%2 == 0 {
					return logtest.None
				}
				return fault
			})
			test(t, st, func(name string, want int, do func() error) {
				t.Helper()
				before, had := tries, count(t, st)
				if err := do(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if n := count(t, st) - had; n != want {
					t.Errorf("%s appended %d events, want %d", name, n, want)
				}
				if tries == before && want > 0 {
					t.Errorf("%s: no publication failed", name)
				}
			})
		})
	}
}

// count returns the number of records of a store.
func count(t *testing.T, st *tally.Store) (n int) {
	t.Helper()
	for _, err := range st.Log.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

package projector_test

import (
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// The snapshots of an erased session and of its forks go, and the loader shows the log as it is now.
func TestEraseSnapshots(t *testing.T) {
	for name, files := range map[string]snapshot.Store{"files": snapshot.NewFiles(t.TempDir()), "memory": &snapshot.Mem{}, "another store": struct{ snapshot.Store }{&snapshot.Mem{}}} {
		t.Run("L-4 "+name, func(t *testing.T) {
			st := &story{t: t}
			sub, fork, other := events.Session("", "s"), events.Session("", "f"), events.Session("", "other")
			first := st.add(sub, aTurn(testkit.Canary("first")))
			st.add(fork, &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-03-01T12:00:00Z", Fork: &events.Fork{Session: "s", Offset: first}})
			st.add(fork, aTurn("own"))
			st.add(other, aTurn("other"))
			l := (&projector.Loader{Source: st.records, Snapshots: files}).SetChunks(1, 2)
			for _, s := range []events.Subject{sub, fork, other} {
				if _, err := l.Keep(t.Context(), s, 0, ""); err != nil {
					t.Fatal(err)
				}
			}
			l.Source = erase(t, st.records, func(rec events.Record) bool { return rec.Subject == sub })
			if err := l.Erase(t.Context(), sub, fork); err != nil {
				t.Fatal(err)
			}
			for m, err := range files.All(t.Context()) {
				if err != nil || m.Subject != other {
					t.Errorf("a snapshot of %v stays, %v", m.Subject, err)
				}
			}
			for _, s := range []events.Subject{sub, fork} {
				if turns := mustSession(t, l, s, 0).Threads.Turns("main"); turns[0].Erased != receipt || testkit.HasCanary(turns[0].Raw) {
					t.Errorf("%s: the first turn is %s", s.Name(), turns[0].Raw)
				}
			}
		})
	}
}

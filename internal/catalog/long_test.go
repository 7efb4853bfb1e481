package catalog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// longLog returns a log of a session with many turns and rewinds, and forks of it.
func longLog(t *testing.T, seed uint64, n int) testkit.Records {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	var list testkit.Records
	for at := events.Offset(1); len(list) < n; at++ {
		sub := events.Session("", "long")
		var p events.Payload = &events.TurnAppended{Entries: []events.Entry{{Thread: fmt.Sprintf("t%d", r.IntN(3)), Turn: events.Raw(`1`)}}}
		switch back := 1 + events.Offset(r.Uint64N(uint64(at))); {
		case at > 1 && r.IntN(300) == 0:
			p = &events.SessionRewound{To: min(back, at-1)}
		case at > 1 && r.IntN(500) == 0:
			sub = events.Session("", fmt.Sprint("fork", at))
			p = &events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: "long", Offset: min(back, at-1)}}
		}
		e, err := events.New("urn:test", sub, p)
		must(t, err)
		if at > 1 && r.IntN(100) == 0 { // its producer may have read records that are no longer in effect
			e = e.WithExtension(events.ExtBasis, (1 + events.Offset(r.Uint64N(uint64(at-1)))).Padded())
		}
		e.ID = fmt.Sprint("e", at)
		list = append(list, events.Record{Event: e, Offset: at, Recorded: time.Unix(int64(at), 0)})
	}
	return list
}

// A long session, mostly not in memory, gets the same rows in many batches, and with restarted writers, as in one go.
func TestLongSession(t *testing.T) {
	for seed := range uint64(3) {
		records, dir := longLog(t, seed, 5000), t.TempDir()
		whole := newCatalog(filepath.Join(dir, "whole.db"), current, openingOf, nullLogger)
		defer whole.Close()
		beginAt(t, whole, 0)
		must(t, putAll(t, whole, records))

		parts := newCatalog(filepath.Join(dir, "parts.db"), current, openingOf, nullLogger)
		defer parts.Close()
		beginAt(t, parts, 0)
		for i := 0; i < len(records); i += 150 {
			if i%1500 == 0 {
				beginAt(t, parts, events.Offset(i))
			}
			must(t, putAll(t, parts, records[i:min(i+150, len(records))]))
		}
		if s, err := parts.session(t.Context(), events.Session("", "long")); err != nil || s.footprint() > 100_000 {
			t.Errorf("the session takes %d bytes in memory, error %v", s.footprint(), err)
		}
		for _, table := range catalogForm.tables {
			diff, err := difference(t.Context(), parts.conn, whole.conn, table, current, current)
			must(t, err)
			if diff != "" {
				t.Fatalf("seed %d: %s", seed, diff)
			}
		}
	}
}

// If a block of a session cannot be read, the view fails, not the session.
func TestLongSessionUnread(t *testing.T) {
	c, records := New(t.TempDir(), openingOf, nullLogger), longLog(t, 1, 3000)
	defer c.Close()
	beginAt(t, c, 0)
	must(t, putAll(t, c, records))
	must(t, c.run(t.Context(), "DELETE FROM marks{set} WHERE number=2"))
	e, err := events.New("urn:test", events.Session("", "long"), &events.SessionRewound{To: 600})
	must(t, err)
	err = c.Apply(t.Context(), projector.Decode(events.Record{Event: e, Offset: 3001}))
	if _, fold := errors.AsType[*projector.FoldError](err); err == nil || fold {
		t.Errorf("apply a rewind to a removed record: %v", err)
	}
}

package tavern_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// overtaken is a Backend on which another process appends something before the next append is stored. Followers read
// each record a second after it was stored.
type overtaken struct {
	log.Backend
	by func() // called before the next append; nil: nobody overtakes it
}

func (b *overtaken) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	if by := b.by; by != nil {
		b.by = nil
		by()
	}
	return b.Backend.Publish(ctx, p)
}

func (b *overtaken) Scan(ctx context.Context, q log.Query) (log.Cursor, error) {
	c, err := b.Backend.Scan(ctx, q)
	if err == nil && q.Live {
		c = lateCursor{c}
	}
	return c, err
}

type lateCursor struct{ log.Cursor }

func (c lateCursor) Next(ctx context.Context) (log.Message, error) {
	m, err := c.Cursor.Next(ctx)
	time.Sleep(time.Second)
	return m, err
}

// withoutEffect are the records that refuse a worker's claim and change no item. other is a process that held the item
// b and finished it, and that held the item a and released it.
var withoutEffect = map[string]func(ctx context.Context, other *tally.Store, a, b *tavern.Claim) error{
	"a late failure of another item": func(ctx context.Context, _ *tally.Store, _, b *tavern.Claim) error { return b.Fail(ctx, "late", true) },
	"a late end of another item":     func(ctx context.Context, _ *tally.Store, _, b *tavern.Claim) error { return b.Fail(ctx, "late", false) },
	"a late failure of the item":     func(ctx context.Context, _ *tally.Store, a, _ *tavern.Claim) error { return a.Fail(ctx, "late", true) },
	"a report about no item": func(ctx context.Context, other *tally.Store, _, _ *tavern.Claim) error {
		return appendReport(ctx, other, events.Session("", projector.QueueSession("q")), events.RunRef{Kind: events.KindItem, ID: "nobody"})
	},
	"a report of another run": func(ctx context.Context, other *tally.Store, _, _ *tavern.Claim) error {
		return appendReport(ctx, other, events.Session("", projector.ItemSession("q", "a")), events.RunRef{Kind: events.KindItem, ID: "nobody"})
	},
}

func appendReport(ctx context.Context, st *tally.Store, sub events.Subject, run events.RunRef) error {
	sub.Namespace = st.Namespace()
	e, err := events.New("urn:t", sub, &events.RunProgressed{Run: run, Kind: "said", Note: "so"})
	if err == nil {
		_, err = st.Append(ctx, sub, log.Any, e)
	}
	return err
}

// A worker whose claim was refused by a record without effect has the item as soon as its process has read that record.
func TestOvertakenWithoutEffect(t *testing.T) {
	for name, by := range withoutEffect {
		for _, isSerial := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				mem := memlog.New(memlog.Config{})
				late := &overtaken{Backend: mem}
				st := need(tally.Open(t.Context(), logtest.OpenOn(t, late, log.Config{}), tally.Config{}))
				defer func() { must(t, st.Close()) }()
				other := need(tally.Open(t.Context(), logtest.OpenOn(t, mem, log.Config{}), tally.Config{}))
				defer func() { must(t, other.Close()) }()
				theirs := tavern.QueueOf(other, "q")
				must(t, theirs.Create(t.Context(), tavern.QueueSettings{MaxAttempts: 5, Serial: isSerial}))
				need(theirs.EnqueueMany(t.Context(), tavern.Item{ID: "b"}, tavern.Item{ID: "a"}))
				b := need(theirs.TryClaim(t.Context(), "other"))
				must(t, b.Finish(t.Context(), nil))
				a := need(theirs.TryClaim(t.Context(), "other"))
				must(t, a.Release(t.Context()))

				late.by = func() {
					if err := by(t.Context(), other, a, b); err != nil && !errors.Is(err, log.ErrConflict) {
						t.Error(err)
					}
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				begun := time.Now()
				c, err := tavern.QueueOf(st, "q").Next(ctx, "worker")
				if took := time.Since(begun); err != nil || c.Item.ID != "a" || took > 5*time.Second {
					t.Errorf("%s, serial %v: the worker got %v after %v", name, isSerial, err, took)
				}
			})
		}
	}
}

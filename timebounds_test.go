package tally_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

func TestTimeBounds(t *testing.T) {
	t.Run("net T1 what lasts until a time is over at exactly that time, for everybody", func(t *testing.T) {
		for _, early := range []time.Duration{time.Second, time.Millisecond, time.Nanosecond, 0, -time.Millisecond, -time.Second} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(700 * time.Microsecond) // records have times that a timestamp cannot say
				mem := sharedMem{memlog.New(memlog.Config{})}
				st := on(t, mem, tally.Config{})
				all := func(ctx context.Context, q projector.DocumentQuery) ([]projector.DocumentListed, string, error) { // a view that is at rest
					q.Deleted = true
					return st.Documents().List(ctx, q)
				}
				defer st.Close()
				viewed := on(t, mem, tally.Config{Host: tally.Host{Lister: all, Shown: func(context.Context, string, events.Offset) error { return nil }}})
				defer viewed.Close()
				d, ctx := st.Documents(), t.Context()
				end := time.Now().Add(time.Hour).Truncate(time.Millisecond)
				w := text("x")
				w.ExpiresAt = end
				rev := mustCreate(t, d, "doc", "x", w)
				mustCreate(t, d, "other", "y", linked("y", link("see", "x")))
				claim, err := d.Lease(ctx, "doc", "y", "ann", time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				if lease, err := d.Holder(ctx, "doc", "y"); err != nil || !lease.Until.Equal(claim.Until) {
					t.Errorf("the holder is told %v, and others %v", claim.Until, lease.Until)
				}
				now, err := viewed.LogTime(ctx)
				if err != nil || !now.Equal(time.Now()) {
					t.Fatalf("the log's time is %v, %v", now, err)
				}
				time.Sleep(time.Until(end) - early)
				there := early > 0
				for name, st := range map[string]*tally.Store{"log": st, "view": viewed} {
					d := st.Documents()
					says := func(what string, have bool) {
						t.Helper()
						if have != there {
							t.Errorf("%s: %v before the end, %s says %v", name, early, what, have)
						}
					}
					_, err := d.Read(ctx, "doc", "x")
					says("Read", err == nil)
					_, err = d.ReadAt(ctx, "doc", "x", "head")
					says("ReadAt", err == nil)
					for _, q := range []projector.DocumentQuery{{}, {Kind: "doc"}, {Newest: true, Kind: "doc"}} {
						list, _, err := d.List(ctx, q)
						says(fmt.Sprintf("List of %+v", q), err == nil && slices.ContainsFunc(list, func(l projector.DocumentListed) bool { return l.Subject.ID == "x" }))
					}
					links, err := d.Links(ctx, "other", "y")
					says("Links", err == nil && !links[0].Dangling)
					lease, err := d.Holder(ctx, "doc", "y")
					says("Holder", err == nil && lease.Holder == "ann")
					says("Tx", d.Tx(ctx, func(tx *tally.Tx) error { return second(tx.Read(ctx, "doc", "x")) }) == nil)
					_, err = d.Update(ctx, "doc", "x", rev.Offset+1000, text("x"))
					says("Update", errors.Is(err, log.ErrConflict))
					_, err = d.Lease(ctx, "doc", "y", "bob", -1)
					if !invalid(err) {
						t.Error(err)
					}
				}
				if there && early < time.Second { // a refused append takes a moment
					return
				}
				_, err = viewed.Documents().Lease(ctx, "doc", "y", "bob", time.Minute)
				if errors.Is(err, log.ErrConflict) != there {
					t.Errorf("%v before the end, Lease of another one: %v", early, err)
				}
				_, err = viewed.Documents().Create(ctx, "doc", "x", text("new"))
				if errors.Is(err, tally.ErrExists) != there {
					t.Errorf("%v before the end, Create: %v", early, err)
				}
			})
		}
	})
	t.Run("net T1 who releases the lease of somebody else that is over ends nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := on(t, sharedMem{memlog.New(memlog.Config{})}, tally.Config{})
			defer st.Close()
			d, ctx := st.Documents(), t.Context()
			claim, err := d.Lease(ctx, "doc", "x", "ann", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if err := d.Release(ctx, "doc", "x", "bob"); err != nil {
				t.Error(err)
			}
			if _, err := claim.Renew(ctx); err != nil { // nobody else has it
				t.Errorf("the claim of the last holder: %v", err)
			}
		})
	})
}

package embedded_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/storecopy"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// A store that is copied to a cluster and back is the same, record by record, although the cluster lost its leader
// meanwhile.
func TestClusterCopy(t *testing.T) {
	testkit.OnlyFull(t, "TestCopy of package storecopy interrupts copies, and TestMirror of package log copies to a server that others run")
	testkit.NotUnderRace(t) // the servers are other processes
	t.Run("X-25 X-28 there and back over three nodes, one killed in between", func(t *testing.T) {
		home(t, nil)
		open := func(dir string, isCopy bool) *log.Log {
			s, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: filepath.Join(t.TempDir(), dir), Private: true, Copy: isCopy, SegmentBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s.Log()
		}
		from := open("from", false)
		for i := range 300 {
			var pending []*log.Pending
			for s := range 50 {
				e := events.Event{Source: "urn:test", Type: "x.y", Data: fmt.Appendf(nil, "%d", i)}
				pending = append(pending, from.AppendAsyncBuffered(t.Context(), events.Session("", fmt.Sprint("s", s)), log.Any, e))
			}
			for _, p := range pending {
				if _, err := p.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := from.AppendAll(t.Context(), log.Part{Subject: purse(1), Events: []events.Event{written(fmt.Sprint(i), int64(i))}}, log.Part{Subject: purse(2), Events: []events.Event{written(fmt.Sprint(i), int64(i))}}); err != nil {
				t.Fatal(err)
			}
		}
		c := mustCluster(t)
		c.mustOpen(embedded.Options{MinDurability: "replicated"})
		there, js := c.mustLog(0), c.mustWatch()
		var killing sync.WaitGroup
		once := new(sync.Once)
		to := &storecopy.Copier{From: from, To: there, Progress: func(at events.Offset) {
			if at < 4000 {
				return
			}
			once.Do(func() {
				i := c.leader(js)
				c.kill(i)
				killing.Go(func() { time.Sleep(2 * time.Second); c.start(i) })
			})
		}}
		end, runs := events.Offset(0), 0
		for giveUp := time.Now().Add(2 * time.Minute); ; runs++ {
			var err error
			if _, err = to.Begin(t.Context()); err == nil {
				if end, err = to.Run(t.Context()); err == nil {
					break
				}
			}
			if time.Now().After(giveUp) {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		killing.Wait()
		t.Logf("copied %d records, and began again %d times", end, runs)
		back := &storecopy.Copier{From: there, To: open("back", true)}
		if _, err := back.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := events.Offset(0)
		for rec, err := range back.To.Read(t.Context(), events.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			want, err := from.Record(t.Context(), n)
			if err != nil || rec.Offset != n || !rec.Event.Equal(want.Event) || !rec.Recorded.Equal(want.Recorded) {
				t.Fatalf("%v: there and back it is\n%+v, want\n%+v: %v", n, rec, want, err)
			}
		}
		if head, err := from.Head(t.Context()); n != head || err != nil {
			t.Errorf("there and back it ends at %v, want %v: %v", n, head, err)
		}
	})
}

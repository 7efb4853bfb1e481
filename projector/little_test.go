package projector_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// Sessions of two turns get no snapshots, however many they are and however old they become, and the cursor lists only
// a few of them.
func TestSnapshotterSparesLittleSessions(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := &endless{done: func() {}}
		for i := range 10_000 {
			e, err := events.New("urn:t", events.Session("", fmt.Sprint("little-", i/2)), aTurn("a turn"))
			if err != nil {
				t.Fatal(err)
			}
			e.ID = fmt.Sprint(i)
			l.Records = append(l.Records, events.Record{Event: e, Offset: events.Offset(i + 1)})
		}
		l.there.Store(uint64(len(l.Records)))
		snapshots, cursor := filepath.Join(dir, "snapshots"), filepath.Join(dir, "cursor")
		k := &projector.Snapshotter{Log: l, Snapshots: snapshot.NewFiles(snapshots), Cursor: cursor}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		time.Sleep(time.Hour)
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir(snapshots); !os.IsNotExist(err) {
			t.Errorf("got snapshots %v, %v, want none", entries, err)
		}
		if info, err := os.Stat(cursor); err != nil || info.Size() >= 10<<10 {
			t.Errorf("got a cursor %+v, %v, want less than 10 KiB", info, err)
		}
	})
}

// A session with a sixteenth of the records, or of the bytes, that make a head due gets one when it ages, also in a
// later process, however many other sessions changed meanwhile.
func TestSnapshotterRemembersDueSessions(t *testing.T) {
	onBench(t, func(b *bench) {
		p := projector.Policy{Bytes: 16_000, Leave: -1} // time for the cursor only
		stop := b.keep(p)
		b.turns(s1, 12)
		b.add(s2, aTurn(fmt.Sprintf("%01000d", 0)))
		for i := range 100 {
			b.turns(events.Session("", fmt.Sprint("little-", i)), 1)
		}
		stop()
		b.must(s1)
		stop = b.keep(p)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		b.must(s1, 12)
		b.must(s2, 13)
		b.must(events.Session("", "little-99"))
		stop()
	})
}

// A session that grows by a record a process gets a head after twelve of them.
func TestSnapshotterCountsOverProcesses(t *testing.T) {
	onBench(t, func(b *bench) {
		for i := range 24 {
			stop := b.keep(projector.Policy{})
			b.turns(s1, 1)
			stop()
			if want := [][]int{nil, {12}, {12, 24}}[(i+1)/12]; !slices.Equal(snapshotOffsets(b.t, b.store, s1), want) {
				b.t.Fatalf("after %d processes: got snapshots %v, want %v", i+1, snapshotOffsets(b.t, b.store, s1), want)
			}
		}
	})
}

// A cursor that lists every changed session, as earlier versions wrote it, is read with all its counts.
func TestSnapshotterReadsLongCursors(t *testing.T) {
	onBench(t, func(b *bench) {
		var changed []string
		for i := range 200 {
			sub := events.Session("", fmt.Sprint("old-", i))
			b.turns(sub, 1)
			changed = append(changed, fmt.Sprintf(`{"subject":%q,"records":11,"bytes":99,"last":%d}`, sub.NATS(), i+1))
		}
		last, err := b.log.Record(b.t.Context(), 200)
		if err != nil {
			b.t.Fatal(err)
		}
		cursor := filepath.Join(b.dir, "state", "cursor")
		if err := os.MkdirAll(filepath.Dir(cursor), 0o700); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(cursor, fmt.Appendf(nil, `{"offset":200,"eventId":%q,"changed":[%s]}`, last.ID, strings.Join(changed, ",")), 0o600); err != nil {
			b.t.Fatal(err)
		}
		stop := b.keep(projector.Policy{})
		b.turns(events.Session("", "old-0"), 1)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		b.must(events.Session("", "old-0"), 201)
		b.must(events.Session("", "old-1"))
		stop()
		if list := b.warn.all(); len(list) > 0 {
			b.t.Errorf("got warnings %q, want none", list)
		}
	})
}

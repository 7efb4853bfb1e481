//go:build unix

package projector

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"sort"
	"syscall"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/snapshot"
)

// BenchmarkSnapshotter follows 50,000 records of 50 sessions in turn, with snapshots in files.
func BenchmarkSnapshotter(b *testing.B) {
	const sessions, records = 50, 50_000
	turn := events.Raw(fmt.Sprintf(`{"role":"user","content":"%0300d"}`, 0))
	l := &busyLog{of: make(map[events.Subject][]events.Record)}
	for i := range records {
		sub := events.Session("", fmt.Sprint("busy-", i%sessions))
		e, err := events.New("urn:bench", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: turn}}})
		if err != nil {
			b.Fatal(err)
		}
		e.ID, e.Time = fmt.Sprint(i), time.Unix(int64(i), 0).UTC()
		rec := events.Record{Event: e, Offset: events.Offset(i + 1), Recorded: e.Time}
		l.all, l.of[sub] = append(l.all, rec), append(l.of[sub], rec)
	}
	for _, every := range []int{200, 400, 800} {
		b.Run(fmt.Sprint(every), func(b *testing.B) {
			began := cpuTime(b)
			for b.Loop() {
				ctx, stop := context.WithCancel(b.Context())
				l.done, l.end = stop, 0
				dir := b.TempDir()
				k := &Snapshotter{Log: l, Snapshots: snapshot.NewFiles(dir), Cursor: filepath.Join(dir, "cursor"), Policy: Policy{Records: every, Leave: -1}}
				if err := k.Run(ctx); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-began).Nanoseconds())/float64(b.N*records), "CPU-ns/record")
		})
	}
}

// busyLog is a log that grows while it is read: a session ends at the last record that was read of all sessions.
// Waiting for a record after the last one calls done.
type busyLog struct {
	all  []events.Record
	of   map[events.Subject][]events.Record
	end  events.Offset
	done func()
}

func (l *busyLog) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		list := l.all
		whole := r.Subject == events.Subject{}
		if !whole {
			list = l.of[r.Subject]
		}
		list = list[sort.Search(len(list), func(i int) bool { return list[i].Offset > r.After }):]
		for i, rec := range list {
			if whole {
				l.end = rec.Offset
			}
			if rec.Offset > l.end || r.Upto != 0 && rec.Offset > r.Upto || r.Limit > 0 && i >= r.Limit || !yield(rec, nil) {
				return
			}
		}
	}
}

func (l *busyLog) Record(_ context.Context, at events.Offset) (events.Record, error) {
	return l.all[at-1], nil
}

func (l *busyLog) Follow(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		l.done()
		<-ctx.Done()
	}
}

func (l *busyLog) Head(context.Context) (events.Offset, error) { return events.Offset(len(l.all)), nil }

// cpuTime returns the CPU time of the process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

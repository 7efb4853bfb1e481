package storedir_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
)

// The list has each lost record once, by offset, with the subject that was known first.
func TestListOfLostRecords(t *testing.T) {
	t.Run("net D1 the list forgets nothing", func(t *testing.T) {
		random := rand.New(rand.NewPCG(9, 9))
		for range 20 {
			dir := t.TempDir()
			if err := os.MkdirAll(storedir.DamagedDir(dir), 0o700); err != nil {
				t.Fatal(err)
			}
			want := make(map[events.Offset]log.Hole)
			for range 1 + random.IntN(4) {
				var lost []log.Hole
				for _, at := range random.Perm(8)[:random.IntN(5)] {
					h := log.Hole{Offset: events.Offset(at + 1)}
					if random.IntN(2) == 0 {
						h.Subject = fmt.Sprint("tally.", random.IntN(3))
					}
					if lost = append(lost, h); want[h.Offset] == (log.Hole{}) {
						want[h.Offset] = h
					}
				}
				if err := storedir.AddHoles(dir, lost); err != nil {
					t.Fatal(err)
				}
			}
			var list []log.Hole
			for _, at := range slices.Sorted(maps.Keys(want)) {
				list = append(list, want[at])
			}
			if got, err := storedir.ReadHoles(dir); err != nil || !slices.Equal(got, list) {
				t.Fatalf("got %v, %v, want %v", got, err, list)
			}
		}
	})
}

// A look for the owner leaves the lock free for the next one.
func TestLiveOwnerTakesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := storedir.WriteOwner(dir, storedir.Owner{PID: 1, URL: "nats://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := storedir.LiveOwner(dir); !isNoOwner(err) {
			t.Fatalf("got %v, want no owner", err)
		}
	}
	lock, err := storedir.TakeLock(dir)
	if err != nil {
		t.Fatalf("the lock of a store without an owner: %v", err)
	}
	defer lock.Close()
	if o, err := storedir.LiveOwner(dir); err != nil || o.PID != 1 {
		t.Errorf("got %+v, %v, want the owner", o, err)
	}
}

func isNoOwner(err error) bool {
	_, is := errors.AsType[*storedir.NoOwnerError](err)
	return is
}

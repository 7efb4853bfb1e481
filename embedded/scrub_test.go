package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/log"
)

// A block that was not checked before the server opened it is repaired while the store is in use. (The wrong sequences
// here are two million ahead, which costs the server little; with a higher bit it would use all memory.)
func TestScrub(t *testing.T) {
	t.Parallel()
	im := newImage(t, func(s *embedded.Server) { mustClose(t, s) })
	for name, c := range map[string]struct {
		damage func(record []byte)
		lost   int // records; 0: the block is repaired
	}{
		"a bit of a sequence": {func(r []byte) { r[6] ^= 32 }, 0},
		"a sequence and more": {func(r []byte) { r[6] ^= 32; r[100] ^= 6 }, 1},
		"a bit of the data":   {func(r []byte) { r[100] ^= 1 }, 0},
		"much of the data":    {func(r []byte) { r[100] ^= 6; r[120] ^= 9 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			copyStore(t, dir, im.dir)
			s := mustStart(t, smallSegments(dir))
			var appending sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			appending.Go(func() { // concurrently
				for i := 0; ctx.Err() == nil; i++ {
					if _, err := s.Log().Append(t.Context(), events.Session("", "beside"), log.Any, turn(fmt.Sprint("beside-", i), "x")); err != nil {
						t.Error(err)
						return
					}
				}
			})

			path, before, records := firstBlock(t, dir)
			hit, damaged := records[len(records)/2], bytes.Clone(before)
			c.damage(damaged[hit.Begin:])
			rewriteInPlace(t, path, damaged)
			embedded.Scrub(t.Context(), t, s)
			stop()
			appending.Wait()
			if now, _, _ := firstBlock(t, dir); c.lost == 0 && !bytes.Equal(mustReadFile(t, now), before) {
				t.Error("the block differs from the original")
			}
			for round := range 2 {
				mustClose(t, s) // the server's memory differs from the disk
				s = mustStart(t, smallSegments(dir))
				found := im.check(t, s, fmt.Sprint("round ", round))
				if len(found) != c.lost || c.lost > 0 && !found[events.Offset(hit.Seq)] {
					t.Errorf("round %d: got %d lost records, want %d: %v", round, len(found), c.lost, found)
				}
			}
		})
	}
}

// firstBlock reads the first block of a store.
func firstBlock(t *testing.T, dir string) (path string, data []byte, records []natsfile.Record) {
	t.Helper()
	path = filepath.Join(dir, "jetstream", "$G", "streams", "TALLY_1", "msgs", "1.blk")
	data = mustReadFile(t, path)
	records, _ = natsfile.Scan("TALLY_1", 1, data)
	return path, data, records
}

func mustReadFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A server that reads a damaged block discards the rest of it, and after the next start reports nothing missing. tally
// notices the loss by the records before and after it.
func TestScrubMissesWhatTheServerThrewAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := mustStart(t, embedded.ServerOptions{Dir: dir})
	sub, text := events.Session("", "s"), strings.Repeat("x", 200_000)
	for i := range 60 { // more than one block
		mustAppend(t, s.Log(), sub, turn(fmt.Sprint("turn-", i), text))
	}
	mustClose(t, s)
	path, before, records := firstBlock(t, dir)
	hit, last := records[len(records)/2], records[len(records)-1]
	if last.Seq == 60 {
		t.Fatal("got one block, want more")
	}
	rewriteInPlace(t, path, before[:hit.Begin])
	if err := os.Remove(filepath.Join(filepath.Dir(path), "index.db")); err != nil {
		t.Fatal(err) // as the server leaves the block after reading it
	}
	s = mustStart(t, embedded.ServerOptions{Dir: dir, VetBytes: 1})
	embedded.Scrub(t.Context(), t, s)
	for round := range 2 {
		lost := 0
		for _, err := range s.Log().Read(t.Context(), events.Range{Subject: sub}) {
			if _, damaged := errors.AsType[*events.DamageError](err); damaged {
				lost++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if want := int(last.Seq - hit.Seq + 1); lost != want {
			t.Errorf("round %d: got %d lost records, want %d", round, lost, want)
		}
		mustClose(t, s)
		s = mustStart(t, embedded.ServerOptions{Dir: dir, VetBytes: 1})
	}
}

package embedded_test

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// If acknowledged durable records are missing at the end of the log, or the whole log is missing, each process that
// opens the store gets the loss reported, whatever it reads first.
func TestLostTailIsNamedAtOnce(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t)
	t.Parallel()
	const n = 40
	for name, stop := range map[string]func(*testing.T, *embedded.Server){"closed": mustClose, "killed": func(*testing.T, *embedded.Server) {}} {
		for blocks, size := range map[string]int{"one block": 10, "two blocks": 300_000} {
			dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
			s := mustStart(t, embedded.ServerOptions{Dir: dir})
			for i := range n {
				mustAppend(t, s.Log(), events.Session("", fmt.Sprint("s", i%3)), turn(fmt.Sprint("turn-", i), strings.Repeat("x", size)))
			}
			stop(t, s)
			copyStore(t, image, dir)
			if list := lastBlocks(t, image); (len(list) > 1) != (blocks == "two blocks") {
				t.Fatalf("%s: %v", blocks, list)
			}
			takes := map[string]func(dir string) error{
				"the newest block": func(dir string) error { return os.Remove(newest(lastBlocks(t, dir))) },
				"all in it":        func(dir string) error { return os.Truncate(newest(lastBlocks(t, dir)), 0) },
				"the half of it":   func(dir string) error { return halve(newest(lastBlocks(t, dir))) },
				"the log":          func(dir string) error { return removeAll(dir, "jetstream", "mark") },
			}
			if name == "closed" { // otherwise no other file has the length of the log
				takes["the blocks and the watermark"] = func(dir string) error { return errors.Join(removeAll(dir, "watermark"), removeBlocks(dir)) }
			}
			for taken, take := range takes {
				t.Run(fmt.Sprintf("%s, %s, %s", name, blocks, taken), func(t *testing.T) {
					if (name == "killed") != (blocks == "one block") || taken == "all in it" {
						testkit.OnlyFull(t, "a store that was killed has one block, and one that was closed has two")
					}
					dir := filepath.Join(t.TempDir(), "store")
					copyStore(t, dir, image)
					if err := take(dir); err != nil {
						t.Fatal(err)
					}
					for round := range 2 {
						s := mustStart(t, embedded.ServerOptions{Dir: dir})
						for i := range 3 {
							mustBeNamed(t, s, events.Range{Subject: events.Session("", fmt.Sprint("s", i))}, n, fmt.Sprint("round ", round))
						}
						mustBeNamed(t, s, events.Range{}, n, fmt.Sprint("round ", round))
						if ack := mustAppend(t, s.Log(), events.Session("", "new"), turn(fmt.Sprint("new-", round), "x")); ack.Last <= n {
							t.Errorf("offset %v was assigned again", ack.Last)
						}
						mustClose(t, s)
					}
				})
			}
		}
	}
}

// mustBeNamed reads a range, forwards and backwards. It fails unless each of the first n records in the range is
// returned or reported as lost. Turn i is of session i%3.
func mustBeNamed(t *testing.T, s *embedded.Server, r events.Range, n int, where string) {
	t.Helper()
	for name, read := range map[string]iter.Seq2[events.Record, error]{"read": s.Log().Read(t.Context(), r), "read back": s.Log().ReadBack(t.Context(), r)} {
		seen := make(map[events.Offset]bool)
		for rec, err := range read {
			damage, damaged := errors.AsType[*events.DamageError](err)
			if err != nil && !damaged {
				t.Fatal(err)
			}
			if damaged {
				rec.Offset = damage.Offset
			}
			if seen[rec.Offset] {
				t.Errorf("%s: %s %v: %v was returned twice", where, name, r.Subject, rec.Offset)
			}
			seen[rec.Offset] = true
		}
		for i := range n {
			if of := events.Session("", fmt.Sprint("s", i%3)); !seen[events.Offset(i+1)] && (r.Subject == events.Subject{} || r.Subject == of) {
				t.Errorf("%s: %s %v lacks @%d without a report", where, name, r.Subject, i+1)
				break
			}
		}
	}
	for i := range n {
		if rec, err := s.Log().Record(t.Context(), events.Offset(i+1)); err == nil && rec.ID != fmt.Sprint("turn-", i) {
			t.Errorf("%s: @%d: got %s", where, i+1, rec.ID)
		} else if _, damaged := errors.AsType[*events.DamageError](err); err != nil && !damaged {
			t.Errorf("%s: @%d: got %v", where, i+1, err)
		}
	}
}

// lastBlocks lists the blocks of a store's last stream, in order.
func lastBlocks(t *testing.T, dir string) []string {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", fmt.Sprint("TALLY_", len(segments(t, dir))), "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("blocks %v, %v", blocks, err)
	}
	slices.SortFunc(blocks, func(a, b string) int { return len(a) - len(b) + strings.Compare(a, b) })
	return blocks
}

func newest(blocks []string) string { return blocks[len(blocks)-1] }

func halve(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()/2)
}

func removeAll(dir string, names ...string) error {
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// removeBlocks removes the records of a stream, and leaves its description.
func removeBlocks(dir string) error {
	msgs, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "TALLY_1", "msgs"))
	if err != nil || len(msgs) != 1 {
		return fmt.Errorf("%v, %w", msgs, err)
	}
	return os.RemoveAll(msgs[0])
}

package embedded_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// misread makes this program misunderstand the server's files until the test ends.
func misread(t *testing.T, key, block string) {
	before := natsfile.Layout
	natsfile.Layout.Key, natsfile.Layout.Block = key, block
	t.Cleanup(func() { natsfile.Layout = before })
}

// A server with another layout of its files loses no data: the program changes no block that looks damaged, every
// record stays readable, and each acknowledgement waits for a sync. This holds whether or not the version is known.
func TestForeignLayoutIsNotDamage(t *testing.T) {
	testkit.OnlyFull(t, "the layouts of blocks are those of the fixtures of natsfile")
	testkit.NotUnderRace(t) // no concurrency
	const n = 3000
	dir := t.TempDir()
	s := mustStart(t, embedded.ServerOptions{Dir: dir, SegmentBytes: 200_000})
	sub := func(i int) events.Subject { return events.Session("", fmt.Sprint("s", i%10)) }
	var pending []*log.Pending
	for i := range n {
		pending = append(pending, s.Log().AppendAsync(t.Context(), sub(i), log.Any, turn(fmt.Sprint("turn-", i), "x")))
	}
	for _, p := range pending {
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	mustSettle(t, dir)
	killed, closed := filepath.Join(t.TempDir(), "killed"), filepath.Join(t.TempDir(), "closed")
	copyStore(t, killed, dir)
	mustClose(t, s)
	copyStore(t, closed, dir)

	for image, from := range map[string]string{"killed": killed, "closed": closed} {
		for name, c := range map[string]struct{ key, block, version string }{
			"another key":          {"%s/%d", ".blk", embedded.ServerVersion},
			"other names":          {"%s-%d", ".block", embedded.ServerVersion},
			"another key, said so": {"%s/%d", ".blk", "2.99.0"},
			"other names, said so": {"%s-%d", ".block", "2.99.0"},
		} {
			t.Run(image+", "+name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "store")
				copyStore(t, dir, from)
				before := blockBytes(t, dir)
				misread(t, c.key, c.block)
				embedded.SetServerVersion(t, c.version)
				for round := range 2 {
					var said bytes.Buffer
					// (No segment begins here: the first sync of a segment covers the whole file system.)
					s := mustStart(t, embedded.ServerOptions{Dir: dir, SegmentBytes: 1 << 30, Logger: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))})
					_, unsure := s.Log().Append(t.Context(), sub(0), log.Any, turn(fmt.Sprint("turn-", n+round), "x"))
					if unsure == nil && !embedded.SyncsAlways(s) {
						t.Error("got an acknowledgement without a sync")
					}
					if unsure != nil && !errors.Is(unsure, log.ErrUnknown) && !errors.Is(unsure, log.ErrUnavailable) {
						t.Error(unsure)
					}
					seen := make(map[string]int)
					for rec, err := range s.Log().Read(t.Context(), events.Range{Buffered: true}) {
						if err != nil {
							t.Fatalf("round %d: %v", round, err)
						}
						seen[rec.ID]++
					}
					for i := range n {
						if seen[fmt.Sprint("turn-", i)] != 1 {
							t.Fatalf("round %d: turn %d: got %d copies, want one", round, i, seen[fmt.Sprint("turn-", i)])
						}
					}
					for name, data := range blockBytes(t, dir) {
						if old, there := before[name]; there && !bytes.HasPrefix(data, old) {
							t.Errorf("round %d: %s was changed", round, name)
						}
					}
					for name := range before {
						if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
							t.Errorf("round %d: %v", round, err)
						}
					}
					if lost := s.Lost(); len(lost) > 0 {
						t.Errorf("round %d: got %d lost records, want 0", round, len(lost))
					}
					if strings.Contains(name, "said so") && strings.Count(said.String(), "not known to this program") != 1 {
						t.Errorf("round %d: got the messages %s", round, said.String())
					}
					after := filepath.Join(t.TempDir(), "store")
					copyStore(t, after, dir) // as after a kill at this point
					if err := s.Close(); (err == nil) != (unsure == nil) {
						t.Errorf("append: %v, close: %v", unsure, err)
					}
					dir = after
				}
			})
		}
	}
}

// blockBytes reads the blocks of a store.
func blockBytes(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	blocks := make(map[string][]byte)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".blk" {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		blocks[rel] = mustReadFile(t, path)
		return err
	})
	if err != nil || len(blocks) == 0 {
		t.Fatalf("%d blocks: %v", len(blocks), err)
	}
	return blocks
}

// If neither a block nor another block of its stream has an intact record, the start is refused with the block's name,
// and the block stays. After the file is removed, the store opens and names the lost records.
func TestBlockWithoutASoundRecordIsRefused(t *testing.T) {
	for name, stop := range map[string]func(*testing.T, *embedded.Server){"closed": mustClose, "killed": func(*testing.T, *embedded.Server) {}} {
		t.Run(name, func(t *testing.T) {
			dir, image := filepath.Join(t.TempDir(), "store"), t.TempDir()
			s := mustStart(t, embedded.ServerOptions{Dir: image})
			for i := range 30 {
				mustAppend(t, s.Log(), events.Session("", fmt.Sprint("s", i%3)), turn(fmt.Sprint("turn-", i), "x"))
			}
			stop(t, s)
			copyStore(t, dir, image)
			block := newest(lastBlocks(t, dir))
			spoilt := bytes.Repeat([]byte{0x55}, len(mustReadFile(t, block)))
			rewriteInPlace(t, block, spoilt)
			for range 2 {
				s, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: dir})
				if err == nil {
					s.Close()
				}
				refused, ok := errors.AsType[*embedded.LayoutError](err)
				if !ok || refused.File != block || !errors.Is(err, log.ErrUnavailable) {
					t.Fatalf("got %v, want a LayoutError that names %s", err, block)
				}
				if !bytes.Equal(mustReadFile(t, block), spoilt) {
					t.Error("the block was changed")
				}
			}
			if err := os.Remove(block); err != nil {
				t.Fatal(err)
			}
			s = mustStart(t, embedded.ServerOptions{Dir: dir})
			mustBeNamed(t, s, events.Range{}, 30, "without the block")
			if n := len(s.Lost()); n != 30 {
				t.Errorf("got %d lost records, want 30", n)
			}
		})
	}
}

// Files of an unknown server version stay unchanged, also when a known version opens the store.
func TestUnknownVersionIsRemembered(t *testing.T) {
	dir := t.TempDir()
	embedded.SetServerVersion(t, "2.99.0")
	mustClose(t, mustStart(t, embedded.ServerOptions{Dir: dir}))
	embedded.SetServerVersion(t, embedded.ServerVersion)
	for range 2 {
		s := mustStart(t, embedded.ServerOptions{Dir: dir})
		if !embedded.SyncsAlways(s) {
			t.Error("the store was taken for one of a known version")
		}
		mustClose(t, s)
	}
	mark := string(mustReadFile(t, filepath.Join(dir, "mark")))
	if !strings.Contains(mark, `"servers":["2.99.0","`+embedded.ServerVersion+`"]`) {
		t.Errorf("got the mark %s", mark)
	}
}

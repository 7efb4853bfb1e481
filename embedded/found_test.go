package embedded_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// A record that a read finds to be lost is written down with its subject, at the latest when the store is closed. The
// next process knows it before it reads, whatever its server answers.
func TestWhatAReadFindsIsWrittenDown(t *testing.T) {
	t.Parallel()
	im := newImage(t, func(s *embedded.Server) { mustClose(t, s) })
	for name, closed := range map[string]bool{"closed": true, "killed": false} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			copyStore(t, dir, im.dir)
			path, data, records := firstBlock(t, dir)
			hit := records[len(records)/2]
			data[hit.End-60] ^= 6 // two bits of its data: beyond repair
			rewriteInPlace(t, path, data)
			// No check examines the block before the server opens it. At the opening the check is only whether the
			// block misleads the server.
			o := smallSegments(dir)
			o.VetBytes = 1
			s := mustStart(t, o)
			if n := len(s.Lost()); n != 0 {
				t.Fatalf("%d records were known to be lost before the read: the test shows nothing", n)
			}
			damaged := im.check(t, s, name)
			if len(damaged) != 1 || !damaged[events.Offset(hit.Seq)] {
				t.Fatalf("got lost records %v, want %d", damaged, hit.Seq)
			}
			want := log.Hole{Offset: events.Offset(hit.Seq), Subject: hit.Subject}
			if closed {
				mustClose(t, s) // at once
			} else {
				eventually(t, func() error { return isWritten(dir, want) })
				copied := filepath.Join(t.TempDir(), "copy")
				copyStore(t, copied, dir)
				dir, o.Dir = copied, copied
			}
			if err := isWritten(dir, want); err != nil {
				t.Fatal(err)
			}
			again := mustStart(t, o)
			if !slices.Contains(again.Lost(), want) || again.Log().Lost() != 1 {
				t.Errorf("got lost records %v, want %v", again.Lost(), want)
			}
			for _, err := range again.Log().Read(t.Context(), events.Range{Subject: im.subjects[hit.Seq]}) {
				if err != nil {
					t.Errorf("another session: %v", err)
				}
			}
		})
	}
}

func isWritten(dir string, want log.Hole) error {
	text, err := os.ReadFile(filepath.Join(dir, "damaged", "holes.json"))
	if err != nil {
		return err
	}
	var holes struct{ Lost []log.Hole }
	if err := json.Unmarshal(text, &holes); err != nil {
		return err
	}
	if !slices.Contains(holes.Lost, want) {
		return errors.New(fmt.Sprint("written are ", holes.Lost))
	}
	return nil
}

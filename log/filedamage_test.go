package log_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// A log in files has the records around a damaged one, also the last one of its block and the first one of the next.
func TestFilesReadAroundDamage(t *testing.T) {
	testkit.OnlyFull(t, "TestLookNamesDamage of package embedded damages segments of one block")
	testkit.NotUnderRace(t) // nothing runs beside it
	dir, index := t.TempDir(), t.TempDir()
	s := mustServe(t, dir, nil)
	l := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true, Segments: log.Segments{Bytes: 8_500_000, Dir: index}}})
	n, text := 0, strings.Repeat("x", 300_000)
	for deadline := time.Now().Add(testkit.Patience(time.Minute)); ; {
		mustAppend(t, l, events.Session("", "s"), note("", text))
		n++
		if _, err := os.Stat(filepath.Join(index, "TALLY_1.index")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the full segment has no index")
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	mustStop(s)
	msgs := natsfile.Messages(dir, "TALLY_1")
	next, err := natsfile.Begin(natsfile.Path(msgs, 2)) // of the second block
	if err != nil || next < 4 {
		t.Fatalf("the second block begins at %d: %v", next, err)
	}
	const lost = 2
	spoil(t, natsfile.Path(msgs, 1), lost)

	files, err := log.OpenFiles(t.Context(), []string{"TALLY_1", "TALLY_2"}, events.Offset(n), 0, log.Config{Host: log.Host{
		Segments: log.Segments{Dir: index, Blocks: natsfile.Streams(dir)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	for _, at := range []events.Offset{lost - 1, lost, lost + 1, events.Offset(next) - 1, events.Offset(next)} {
		rec, err := files.Record(t.Context(), at)
		if _, damaged := errors.AsType[*events.DamageError](err); damaged != (at == lost) || !damaged && (err != nil || rec.Offset != at) {
			t.Errorf("%v: got %v, %v; lost is %v", at, rec.Offset, err, lost)
		}
	}
	for i, line := range show(t, files, events.Range{Subject: events.Session("", "s")}) {
		want := fmt.Sprint(i + 1)
		if i+1 == lost {
			want = "!" + want
		}
		if line != want {
			t.Errorf("line %d of a read is %s, want %s", i, line, want)
		}
	}
}

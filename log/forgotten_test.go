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

// If a server has lost the end of a full segment, it does not count the lost records. A read of a subject reports them
// by the segment's index, which has the number of records that the subject had there.
func TestIndexCountsWhatTheServerForgot(t *testing.T) {
	dir, index := t.TempDir(), t.TempDir()
	s := mustServe(t, dir, nil)
	l := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true, Segments: log.Segments{Bytes: 20_000, Dir: index}}})
	n := 0
	for deadline := time.Now().Add(testkit.Patience(time.Minute)); ; n++ {
		mustAppend(t, l, events.Session("", fmt.Sprint("s", n%3)), note("", strings.Repeat("x", 200)))
		if _, err := os.Stat(filepath.Join(index, "TALLY_1.index")); err == nil {
			n++
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
	data, err := os.ReadFile(natsfile.Path(msgs, 1))
	if err != nil {
		t.Fatal(err)
	}
	records, _ := natsfile.Scan("TALLY_1", 1, data)
	if len(records) < 20 || len(records) > n {
		t.Fatalf("the first segment has %d of %d records, want at least 20", len(records), n)
	}
	keep := len(records) / 2
	if err := errors.Join(os.Truncate(natsfile.Path(msgs, 1), int64(records[keep].Begin)), os.Remove(filepath.Join(msgs, natsfile.IndexFile))); err != nil {
		t.Fatal(err)
	}
	s = mustServe(t, dir, nil)
	l = mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Segments: log.Segments{Dir: index}}})
	for i := range 3 {
		lines := show(t, l, events.Range{Subject: events.Session("", fmt.Sprint("s", i))})
		named := make(map[string]bool)
		for _, line := range lines {
			named[line] = true
		}
		for at := i + 1; at <= n; at += 3 {
			lost := at > keep && at <= len(records)
			if lost && !named[fmt.Sprint("!", at)] || !lost && !named[fmt.Sprint(at)] {
				t.Fatalf("session %d: @%d is neither returned nor reported as lost (lost are @%d to @%d): %v", i, at, keep+1, len(records), lines)
			}
		}
	}
}

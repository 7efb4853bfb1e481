package embedded_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
)

var update = flag.Bool("update", false, "write the store of this build's server anew")

const fixtures, fixtureRecords = "../internal/nats/natsfile/testdata", 50

// Stores of each known server version are read completely: by the reader, by the check for damage, and by a server of
// this build.
func TestFixture(t *testing.T) {
	minor := embedded.ServerVersion[:strings.LastIndex(embedded.ServerVersion, ".")]
	if *update {
		writeFixture(t, filepath.Join(fixtures, "nats-"+minor))
	}
	stores, err := filepath.Glob(filepath.Join(fixtures, "nats-*"))
	if err != nil || len(stores) == 0 {
		t.Fatalf("%v, %v", stores, err)
	}
	seen := false
	for _, store := range stores {
		version := strings.TrimPrefix(filepath.Base(store), "nats-")
		seen = seen || version == minor
		t.Run(version, func(t *testing.T) {
			if !natsfile.Known(version + ".0") {
				t.Error("the server version is not known")
			}
			readFixture(t, store)
			openFixture(t, store)
		})
	}
	if !seen {
		t.Errorf("no store of nats-server %s in testdata: docs/nats-server.md says how to make one", minor)
	}
}

// writeFixture writes a store of some segments: the first as after a close, the last as after a kill.
func writeFixture(t *testing.T, to string) {
	dir := t.TempDir()
	o := embedded.ServerOptions{Dir: dir, SegmentBytes: 12 << 10}
	s := mustStart(t, o)
	fillSegments(t, s.Log(), 0, fixtureRecords-20)
	mustClose(t, s)
	s = mustStart(t, o)
	fillSegments(t, s.Log(), fixtureRecords-20, 20)
	mustSettle(t, dir)
	err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(dir)), removeAll(to, "lock", "owner.json", "segments", "damaged"))
	if err == nil { // independent of the machine
		mark := filepath.Join(to, "mark")
		err = os.WriteFile(mark, regexp.MustCompile(`"boot":"[^"]*"`).ReplaceAll(mustReadFile(t, mark), []byte(`"boot":""`)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readFixture reads the blocks without a server.
func readFixture(t *testing.T, store string) {
	names, err := natsfile.Folders(store)
	if err != nil || len(names) < 3 {
		t.Fatalf("got streams %v, %v", names, err)
	}
	next := uint64(1)
	for _, name := range names {
		stream := filepath.Join(natsfile.Streams(store), name)
		if sum := natsfile.Checksum(name, mustReadFile(t, filepath.Join(stream, natsfile.MetaFile))); sum != string(mustReadFile(t, filepath.Join(stream, natsfile.SumFile))) {
			t.Errorf("%s: the checksum is not %s", name, sum)
		}
		first, err := natsfile.FirstSequence(store, name)
		if err != nil || first != next {
			t.Errorf("%s: got first sequence %d, %v, want %d", name, first, err, next)
		}
		msgs := natsfile.Messages(store, name)
		numbers, err := natsfile.Numbers(msgs)
		if err != nil || len(numbers) != 1 {
			t.Fatalf("%s: got blocks %v, %v", name, numbers, err)
		}
		data := mustReadFile(t, natsfile.Path(msgs, numbers[0]))
		last, sound := natsfile.Sound(name, numbers[0], data)
		if records, gaps := natsfile.Scan(name, numbers[0], data); !sound || len(gaps) > 0 || len(records) != int(last-first+1) {
			t.Errorf("%s: got %d records up to %d, damaged %v", name, len(records), last, gaps)
		}
		r, err := natsfile.NewReader(msgs, name, first, last, nil)
		if err != nil {
			t.Fatal(err)
		}
		for m, err := r.Next(); !errors.Is(err, io.EOF); m, err = r.Next() {
			sub := events.Session("", fmt.Sprint("s", (next-1)%10)).NATS()
			if err != nil || m.Seq != next || m.Subject != sub || !strings.Contains(m.Header, fmt.Sprint("turn-", next-1)) || !bytes.Contains(m.Data, fmt.Appendf(nil, "%0200d", next-1)) {
				t.Fatalf("message %d: got %+v, %v", next, m, err)
			}
			next++
		}
		r.Close()
	}
	if next != fixtureRecords+1 {
		t.Errorf("got %d messages", next-1)
	}
}

// openFixture opens the store twice with a server of this build.
func openFixture(t *testing.T, store string) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(dir, os.DirFS(store)); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		s := mustStart(t, smallSegments(dir))
		ids := mustRead(t, s.Log(), events.Range{})
		if len(ids) != fixtureRecords || ids[fixtureRecords-1] != fmt.Sprint("turn-", fixtureRecords-1) || len(s.Lost()) > 0 {
			t.Errorf("round %d: got %d records, lost %v", round, len(ids), s.Lost())
		}
		embedded.Scrub(t.Context(), t, s)
		mustClose(t, s)
	}
	if kept, err := os.ReadDir(filepath.Join(dir, "damaged")); err != nil || len(kept) > 0 {
		t.Errorf("got copies of damaged blocks %v, %v", kept, err)
	}
}

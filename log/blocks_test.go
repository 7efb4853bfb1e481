package log_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// Long reads take full segments from the server's files, and so do reads of one subject that has many of the records.
// They return the same as the server, from and to any offset, and whatever happens to the files.
func TestLongReadsTakeFullSegmentsFromBlocks(t *testing.T) {
	testkit.OnlyFull(t, "TestSegmentsAreOneLog of package embedded reads full segments")
	testkit.NotUnderRace(t) // nothing runs beside it
	dir := t.TempDir()
	blocks := filepath.Join(dir, "jetstream", "$G", "streams")
	s := mustServe(t, dir, nil)
	index := t.TempDir()
	l := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true, Segments: log.Segments{Bytes: 600_000, Dir: index}}})
	r := rand.New(rand.NewPCG(1, 2))
	for range 90 {
		var pending []*log.Pending
		for range 100 {
			sub := events.Session("", fmt.Sprint("s", max(0, r.IntN(20)-5)))
			pending = append(pending, l.AppendAsync(t.Context(), sub, log.Any, note("", strings.Repeat("x", r.IntN(200)))))
		}
		for _, p := range pending {
			if _, err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := os.ReadDir(blocks)
	if err != nil || len(segments) < 4 {
		t.Fatalf("the log has %d segments, want at least 4: %v", len(segments), err)
	}

	// open returns a log that reads blocks from a folder, and the number of its connections for large reads.
	open := func(blocks string) (l *log.Log, asked *int) {
		asked = new(int)
		scans := scansOf(s, func(c net.Conn) net.Conn { *asked++; return c })
		return mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Scans: scans, Segments: log.Segments{Blocks: blocks, Dir: index}}}), asked
	}
	// some reads the records of s0, a third of all, and of all sessions, and returns how many consumers of the first
	// segment that took.
	some := func(l *log.Log) (list []outcome, consumers int) {
		made, err := mustDial(t, s).SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.CREATED.TALLY_1.*")
		if err != nil {
			t.Fatal(err)
		}
		for _, rg := range []events.Range{{Subject: events.Session("", "s0")}, {Kind: events.KindSession}, {Subject: events.Session("", "s0"), After: 100, Upto: 8_900}} {
			list = append(list, mustReadRange(t, l, rg)...)
		}
		for {
			if _, err := made.NextMsg(100 * time.Millisecond); err != nil {
				return list, consumers
			}
			consumers++
		}
	}
	plain, _ := open("")
	want := mustReadAll(t, plain)
	wantSome, consumers := some(plain)
	if len(want) != 9000 || len(wantSome) < 13_000 || consumers == 0 {
		t.Fatalf("got %d records from the server, and %d of some subjects by %d consumers", len(want), len(wantSome), consumers)
	}
	for name, c := range map[string]struct {
		blocks string
		asked  int
	}{"the server's": {blocks, 1}, "others": {t.TempDir(), len(segments)}} {
		t.Run(name, func(t *testing.T) {
			l, asked := open(c.blocks)
			if diff := difference(want, mustReadAll(t, l)); diff != "" {
				t.Errorf("read of the whole log (-server +files):\n%s", diff)
			}
			if *asked > c.asked || *asked < c.asked-1 { // the newest segment may have few
				t.Errorf("read %d segments from the server, want %d", *asked, c.asked)
			}
			gotSome, consumers := some(l)
			if diff := difference(wantSome, gotSome); diff != "" {
				t.Errorf("reads of some subjects (-server +files):\n%s", diff)
			}
			if (consumers > 0) != (c.asked > 1) {
				t.Errorf("reads of some subjects made %d consumers of the first segment", consumers)
			}
			for range 10 {
				after := events.Offset(r.IntN(8600))
				rg := events.Range{After: after, Upto: after + 300 + events.Offset(r.IntN(100))}
				if w, g := show(t, plain, rg), show(t, l, rg); !slices.Equal(w, g) {
					t.Errorf("range %v: got %v, want %v", rg, g, w)
				}
			}
		})
	}

	// The server reads its files again.
	mustStop(s)
	msgs := filepath.Join(blocks, "TALLY_2", "msgs")
	numbers, err := natsfile.Numbers(msgs)
	if err != nil || len(numbers) != 1 {
		t.Fatalf("the segment has blocks %v, want 1: %v", numbers, err)
	}
	path := natsfile.Path(msgs, numbers[0])
	data, err := os.ReadFile(path)
	if err == nil {
		half := len(data) / 2
		data[half+bytes.Index(data[half:], []byte("xxxx"))] ^= 4 // in a record's data: of a damaged length the server would throw away the rest
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s = mustServe(t, dir, nil)
	plain, _ = open("")
	l, asked := open(blocks)
	want = mustReadAll(t, plain)
	if diff := difference(want, mustReadAll(t, l)); diff != "" {
		t.Errorf("read of the whole log with a damaged record (-server +files):\n%s", diff)
	}
	if *asked > 2 {
		t.Errorf("read %d segments from the server, want the active one and the one with a damaged record", *asked)
	}
	wantSome, _ = some(plain)
	gotSome, _ := some(l)
	if diff := difference(wantSome, gotSome); diff != "" {
		t.Errorf("reads of some subjects with a damaged record (-server +files):\n%s", diff)
	}
	if lost := len(slices.DeleteFunc(slices.Clone(want), func(o outcome) bool { return o.Err == "<nil>" })); lost != 1 {
		t.Errorf("%d records are lost, want 1", lost)
	}
}

// difference is cmp.Diff for lists that are long and mostly equal.
func difference(want, got []outcome) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got)
}

package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// writeImage writes an image to a new directory.
func writeImage(t *testing.T, im storedir.Image) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "copy")
	for _, f := range im.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		text := f.Text
		if f.Path != "" {
			from, err := os.Open(f.Path)
			if err != nil {
				t.Fatal(err)
			}
			text, err = io.ReadAll(io.LimitReader(from, f.Size))
			if err := errors.Join(err, from.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if int64(len(text)) != f.Size {
			t.Fatalf("%s: got %d bytes, want %d", f.Name, len(text), f.Size)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func mustImage(t *testing.T, dir string, upto func() (events.Offset, error)) storedir.Image {
	t.Helper()
	im, err := storedir.ImageOf(dir, upto)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// mustBeLog opens an image. The image must have exactly these events, and accept the next event after them.
func mustBeLog(t *testing.T, im storedir.Image, want []string) {
	t.Helper()
	o := smallSegments(writeImage(t, im))
	o.Private = true
	s := mustStart(t, o)
	if got := mustRead(t, s.Log(), events.Range{}); !slices.Equal(got, want) {
		t.Fatalf("up to %v: got %d records, want %d", im.Durable, len(got), len(want))
	}
	if n := len(s.Lost()); n > 0 || s.Log().Lost() > 0 {
		t.Errorf("up to %v: got %d lost records", im.Durable, n)
	}
	if ack := mustAppend(t, s.Log(), events.Session("", "next"), turn("next", "x")); int(ack.Last) != len(want)+1 {
		t.Errorf("up to %v: got offset %v for the next event", im.Durable, ack.Last)
	}
	mustClose(t, s)
}

// imageProducers append to a log, each to a session of its own, sometimes three events at once, until they are stopped.
type imageProducers struct {
	mu    sync.Mutex // guards acked
	acked []string
	stop  context.CancelFunc
	done  sync.WaitGroup
}

func produce(t *testing.T, l *log.Log, n int) *imageProducers {
	ctx, stop := context.WithCancel(t.Context())
	p := &imageProducers{stop: stop}
	for i := range n {
		p.done.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				evs := []events.Event{turn(fmt.Sprintf("%d-%d", i, k), strings.Repeat("x", 100))}
				if k%5 == 4 {
					evs = append(evs, turn(fmt.Sprintf("%d-%d+1", i, k), "x"), turn(fmt.Sprintf("%d-%d+2", i, k), "x"))
				}
				if _, err := l.Append(ctx, events.Session("", fmt.Sprint("p", i)), log.Any, evs...); err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				p.mu.Lock()
				for _, e := range evs {
					p.acked = append(p.acked, e.ID)
				}
				p.mu.Unlock()
			}
		})
	}
	return p
}

func (p *imageProducers) soFar() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.acked)
}

// While many producers append and the store begins segments, an image is a log that ends with its last record. It
// contains every event that was acknowledged before, no partial append, and reports no loss. A later copy equals the
// listing.
func TestImageOfAStoreInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := mustStart(t, smallSegments(dir))
	p := produce(t, s.Log(), 16)
	defer p.done.Wait()
	defer p.stop()
	var images []storedir.Image
	var before [][]string // events acknowledged before each image
	for i := range 8 {
		for len(p.soFar()) < 100*i+1+testkit.Random(t).IntN(100) {
			time.Sleep(time.Millisecond)
		}
		before = append(before, p.soFar())
		images = append(images, mustImage(t, dir, func() (events.Offset, error) { return s.Log().Durable(t.Context()) }))
	}
	for n := len(p.soFar()); len(p.soFar()) < n+100; {
		time.Sleep(time.Millisecond)
	}
	p.stop()
	p.done.Wait()
	all := mustRead(t, s.Log(), events.Range{})
	if n := len(segments(t, dir)); n < 3 {
		t.Errorf("got %d segments: the test shows little", n)
	}
	for i, im := range images {
		want := all[:im.Durable]
		if last := want[len(want)-1]; isFirstOfSeveral(last) || strings.HasSuffix(last, "+1") {
			t.Errorf("the image ends with %s, in the middle of an append", last)
		}
		there := make(map[string]bool)
		for _, id := range want {
			there[id] = true
		}
		for _, id := range before[i] {
			if !there[id] {
				t.Errorf("the image lacks %s, which was acknowledged before", id)
			}
		}
		mustBeLog(t, im, want)
	}
}

// isFirstOfSeveral reports whether an event is the first of an append of three.
func isFirstOfSeveral(id string) bool {
	var producer, k int
	n, _ := fmt.Sscanf(id, "%d-%d", &producer, &k)
	return n == 2 && k%5 == 4 && !strings.Contains(id, "+")
}

// An image contains all records up to its end, wherever that is: here around the ends of segments that the store has
// begun and filled since.
func TestImageEndsAnywhere(t *testing.T) {
	testkit.NotUnderRace(t) // no concurrency
	t.Parallel()
	dir := t.TempDir()
	s := mustStart(t, smallSegments(dir))
	ids := fillSegments(t, s.Log(), 0, 400)
	mustSettle(t, dir)
	cuts := []int{0, 1, 400, 150 + testkit.Random(t).IntN(100)}
	for n := 2; n <= len(segments(t, dir)); n++ {
		first, err := natsfile.FirstSequence(dir, fmt.Sprint("TALLY_", n))
		if err != nil {
			t.Fatal(err)
		}
		if n < 4 {
			cuts = append(cuts, int(first)-2, int(first)-1, int(first))
		}
	}
	if len(cuts) < 10 {
		t.Fatalf("got cuts %v: the test shows little", cuts)
	}
	for _, at := range cuts {
		mustBeLog(t, mustImage(t, dir, func() (events.Offset, error) { return events.Offset(at), nil }), ids[:at])
	}
}

// An image knows the lost records that the store knows, and assigns their offsets to no other event, also at the end
// of the log. Damage that the store has not met is found in the image.
func TestImageOfADamagedStore(t *testing.T) {
	testkit.NotUnderRace(t) // no concurrency
	t.Parallel()
	for name, last := range map[string]bool{"in the middle": false, "at the end": true} {
		t.Run(name, func(t *testing.T) {
			whole := newImage(t, func(s *embedded.Server) { mustClose(t, s) })
			number := 1
			if last {
				number = len(segments(t, whole.dir))
			}
			blocks, err := filepath.Glob(filepath.Join(whole.dir, "jetstream", "*", "streams", fmt.Sprint("TALLY_", number), "msgs", "*.blk"))
			if err != nil || len(blocks) != 1 {
				t.Fatalf("got blocks %v, %v", blocks, err)
			}
			data := mustReadFile(t, blocks[0])
			lost := len(whole.ids)
			if !last {
				records, _ := natsfile.Scan("TALLY_1", 1, data)
				lost = int(records[len(records)/2].Seq)
				data[records[len(records)/2].End-60] ^= 6
			} else {
				copy(data[len(data)-60:], "0123456789")
			}
			unmet := mustImage(t, whole.dir, func() (events.Offset, error) { return events.Offset(len(whole.ids)), nil })
			rewriteInPlace(t, blocks[0], data)

			s := mustStart(t, smallSegments(whole.dir))
			whole.check(t, s, "the original")
			mustClose(t, s)
			met := mustImage(t, whole.dir, func() (events.Offset, error) { return s.Log().Durable(t.Context()) })
			images := map[string]storedir.Image{"met": met, "not met": unmet}
			if last {
				images["met, up to the record before"] = mustImage(t, whole.dir, func() (events.Offset, error) { return events.Offset(lost - 1), nil })
			}
			for what, im := range images {
				s := mustStart(t, smallSegments(writeImage(t, im)))
				if damaged := whole.check(t, s, what); len(damaged) != 1 || !damaged[events.Offset(lost)] {
					t.Errorf("%s: got lost records %v, want %d", what, damaged, lost)
				}
				if what == "met" && im.Lost != 1 {
					t.Errorf("got %d known lost records, want 1", im.Lost)
				}
				if ack := mustAppend(t, s.Log(), events.Session("", "new"), turn("new", "x")); int(ack.Last) <= len(whole.ids) {
					t.Errorf("%s: offset %v was assigned again", what, ack.Last)
				}
				mustClose(t, s)
			}
		})
	}
}

// If the description of a stream is damaged, or the server is replacing it, the image has the copy that a start would
// restore. Without a copy there is no image.
func TestImageOfADamagedDescription(t *testing.T) {
	dir := t.TempDir()
	s := mustStart(t, smallSegments(dir))
	ids := fillSegments(t, s.Log(), 0, 20)
	mustClose(t, s)
	sum := filepath.Join(natsfile.Streams(dir), "TALLY_1", natsfile.SumFile)
	if err := os.WriteFile(sum, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	end := func() (events.Offset, error) { return 20, nil }
	mustBeLog(t, mustImage(t, dir, end), ids)
	if err := os.Remove(filepath.Join(dir, "segments", "TALLY_1.meta")); err != nil {
		t.Fatal(err)
	}
	if _, err := storedir.ImageOf(dir, end); err == nil || !strings.Contains(err.Error(), "meta.inf") {
		t.Errorf("without a copy: got %v", err)
	}
}

// A store that an unknown server wrote has no image: this program cannot tell which bytes are durable.
func TestImageOfAnUnknownLayout(t *testing.T) {
	dir := t.TempDir()
	mustClose(t, mustStart(t, embedded.ServerOptions{Dir: dir}))
	embedded.SetServerVersion(t, "2.99.1")
	mustClose(t, mustStart(t, embedded.ServerOptions{Dir: dir}))
	_, err := storedir.ImageOf(dir, func() (events.Offset, error) { return 0, nil })
	if unknown, ok := errors.AsType[*storedir.UnknownServerError](err); !ok || unknown.Version != "2.99.1" || !errors.Is(err, log.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

package tail

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.Checks(100) // the default of rapid
	goleak.VerifyTestMain(m)
}

// A rig is a folder, a Tailer that follows it, and the content that a caller received.
type rig struct {
	t     testing.TB
	dir   string // the root
	state string
	now   time.Time
	opts  func(*Options)
	tail  *Tailer

	docs   map[string]*doc   // by stem
	events []string          // deliveries without lines
	held   []*Batch          // unacknowledged
	hold   bool              // no acknowledgements
	was    map[*Batch][]byte // content before an unacknowledged rewrite
}

// A doc is a caller's copy of a file: its lines by offset, as in a log.
type doc struct {
	content []byte // of the current generation
	next    []byte // of a generation that is being rewritten
	partial bool
	lines   int
	gone    bool
}

func newRig(t testing.TB, opts func(*Options)) *rig {
	t.Helper()
	base := t.TempDir()
	r := &rig{t: t, dir: filepath.Join(base, "followed"), state: filepath.Join(base, "state", "tail.state"), opts: opts,
		now: time.Now(), docs: make(map[string]*doc), was: make(map[*Batch][]byte)}
	must(t, os.Mkdir(r.dir, 0o700))
	t.Cleanup(func() { r.close() })
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) open() {
	r.t.Helper()
	if r.tail != nil {
		return
	}
	o := Options{
		Roots:      []Root{{r.dir, "r"}},
		State:      r.state,
		MaxWatches: -1,
		Now:        func() time.Time { return r.now },
		Whole:      func(b []byte) bool { return bytes.HasSuffix(b, []byte("}")) },
	}
	if r.opts != nil {
		r.opts(&o)
	}
	tailer, err := Open(o)
	must(r.t, err)
	r.tail = tailer
}

func (r *rig) close() {
	if r.tail != nil {
		must(r.t, r.tail.Close())
		r.tail, r.held = nil, nil
	}
}

// kill ends the Tailer like a crash: unsaved state is lost.
func (r *rig) kill() {
	if r.tail == nil {
		return
	}
	r.tail.mu.Lock()
	if r.tail.watch != nil {
		r.tail.watch.Close()
	}
	r.tail.closePacked()
	for _, root := range r.tail.roots {
		root.close()
	}
	if r.tail.journal != nil {
		r.tail.journal.close()
		r.tail.lock.Close()
	}
	r.tail.closed = true
	r.tail.mu.Unlock()
	r.tail, r.held = nil, nil
}

func (r *rig) path(rel string) string { return filepath.Join(r.dir, filepath.FromSlash(rel)) }

func (r *rig) write(rel, content string) {
	r.t.Helper()
	must(r.t, os.MkdirAll(filepath.Dir(r.path(rel)), 0o700))
	must(r.t, os.WriteFile(r.path(rel), []byte(content), 0o600))
}

func (r *rig) append(rel, content string) {
	r.t.Helper()
	f, err := os.OpenFile(r.path(rel), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	must(r.t, err)
	_, err = f.WriteString(content)
	must(r.t, err)
	must(r.t, f.Close())
}

func (r *rig) rename(from, to string) {
	r.t.Helper()
	must(r.t, os.MkdirAll(filepath.Dir(r.path(to)), 0o700))
	must(r.t, os.Rename(r.path(from), r.path(to)))
}

// replace replaces a file by a rename.
func (r *rig) replace(rel, content string) {
	r.t.Helper()
	tmp := filepath.Join(filepath.Dir(r.dir), "tmp")
	must(r.t, os.WriteFile(tmp, []byte(content), 0o600))
	must(r.t, os.Rename(tmp, r.path(rel)))
}

// run advances the time and receives all deliveries of a day.
func (r *rig) run() {
	r.t.Helper()
	r.open()
	for range 4 {
		r.drain()
		r.now = r.now.Add(time.Minute + time.Second)
	}
	r.drain()
}

// drain receives the current deliveries.
func (r *rig) drain() {
	r.t.Helper()
	r.open()
	for n := 0; ; n++ {
		b, isIdle := r.tail.step()
		if b != nil {
			r.take(b)
		}
		if isIdle {
			return
		}
		if n > 20_000 {
			r.t.Fatal("deliveries do not end")
		}
	}
}

// take processes a batch like a caller.
func (r *rig) take(b *Batch) {
	r.t.Helper()
	if b.Kind == Moved && b.From.Stem != b.File.Stem {
		r.docs[b.File.Stem] = r.docs[b.From.Stem]
		delete(r.docs, b.From.Stem)
	}
	d := r.docs[b.File.Stem]
	if d == nil {
		d = &doc{}
		r.docs[b.File.Stem] = d
	}
	r.event(b)
	switch b.Kind {
	case Lines:
		if d.partial {
			r.t.Errorf("%s: got new lines during a rewrite", b.File.Rel)
		}
		d.content = r.add(d, d.content, b)
	case Rewritten:
		if b.First {
			d.next, d.partial = nil, true
		}
		if !d.partial {
			r.t.Errorf("%s: got a rewrite without its beginning", b.File.Rel)
		}
		d.next = r.add(d, d.next, b)
		if b.Last {
			if r.hold {
				r.was[b] = d.content
			}
			d.content, d.next, d.partial = d.next, nil, false
		}
	case Gone:
		d.gone = true
	case Moved:
		d.gone = false
	}
	if r.hold {
		r.held = append(r.held, b)
		return
	}
	r.tail.Ack(b)
}

func (r *rig) event(b *Batch) {
	switch b.Kind {
	case Rewritten:
		if b.First {
			r.events = append(r.events, "rewritten "+b.File.Rel)
		}
	case Moved:
		r.events = append(r.events, "moved "+b.From.Rel+" to "+b.File.Rel)
	case Gone, Unreadable:
		r.events = append(r.events, b.Kind.String()+" "+b.File.Rel)
	}
}

// add adds lines to content. A line at an existing offset is a repetition and must be equal. A line behind the end is a
// gap.
func (r *rig) add(d *doc, content []byte, b *Batch) []byte {
	r.t.Helper()
	for _, l := range b.Lines {
		at := l.Offset - int64(len(l.Before))
		all := slices.Concat(l.Before, l.Bytes, []byte(l.End))
		if int64(len(all)) != l.Len() || len(all) == 0 {
			r.t.Errorf("%s: the line at offset %[3]d has %[2]d bytes, but Len returns %[4]d", b.File.Rel, len(all), at, l.Len())
		}
		if at > int64(len(content)) {
			r.t.Fatalf("%s: lines are missing: offset %d follows %d", b.File.Rel, at, len(content))
		}
		if have := content[at:]; len(have) > 0 {
			if !bytes.HasPrefix(have, all) && !bytes.HasPrefix(all, have) {
				r.t.Fatalf("%s: got %s at offset %d, want %s as before", b.File.Rel, brief(string(all)), at, brief(string(have)))
			}
			if len(have) >= len(all) {
				continue // it was delivered but not acknowledged
			}
		}
		content = append(content[:at:at], all...)
		d.lines++
	}
	return content
}

func (r *rig) ack() {
	for _, b := range r.held {
		r.tail.Ack(b)
	}
	r.held = nil
}

// mustHave compares a caller's copy of a file.
func (r *rig) mustHave(stem, want string) {
	r.t.Helper()
	d := r.docs[stem]
	if d == nil {
		d = &doc{}
	}
	if got := string(d.content); got != want || d.partial {
		r.t.Errorf("the delivered content of %s is %s, want %s (partial: %v)", stem, brief(got), brief(want), d.partial)
	}
}

// mustBe compares the events since the last call, sorted.
func (r *rig) mustBe(want ...string) {
	r.t.Helper()
	slices.Sort(r.events)
	if got := r.events; strings.Join(got, ", ") != strings.Join(want, ", ") {
		r.t.Errorf("events are %q, want %q", got, want)
	}
	r.events = nil
}

func brief(s string) string {
	if len(s) < 300 {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q ... %q (%d bytes)", s[:100], s[len(s)-100:], len(s))
}

var (
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
)

func pack(content string) string { return string(encoder.EncodeAll([]byte(content), nil)) }

func mustUnpack(t testing.TB, b []byte) []byte {
	t.Helper()
	out, err := decoder.DecodeAll(b, nil)
	must(t, err)
	return out
}

// text returns lines of at least n bytes.
func text(name string, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "{\"file\":%q,\"line\":%d}\n", name, i)
	}
	return b.String()
}

// drawnRig returns a rig for a drawn program, and removes its files at the end.
func drawnRig(t *testing.T, rt *rapid.T, opts func(*Options)) (r *rig, end func()) {
	base, err := os.MkdirTemp("", "tail")
	must(t, err)
	r = &rig{t: fataler{t, rt}, dir: filepath.Join(base, "followed"), state: filepath.Join(base, "state"), now: time.Now(), opts: opts,
		docs: make(map[string]*doc), was: make(map[*Batch][]byte)}
	must(t, os.Mkdir(r.dir, 0o700))
	return r, func() { r.kill(); os.RemoveAll(base) }
}

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

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/testkit"
)

// A history is a series of operations on the files of a folder, and of faults of the tailer.
type history struct {
	*rig
	rt     *rapid.T
	files  map[string]string // stem -> path
	packed map[string]bool
	count  int
	clock  time.Time // of files: each write has its own time
}

// For any operations on files, and any crashes and losses of the state, the caller's copy of each file finally equals
// the file. Repeated lines are equal to the first delivery, and no line is skipped: see rig.add.
func TestLaw(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	rapid.Check(t, func(rt *rapid.T) {
		base, err := os.MkdirTemp("", "tail-law")
		must(t, err)
		defer os.RemoveAll(base)
		r := &rig{t: fataler{t, rt}, dir: filepath.Join(base, "followed"), state: filepath.Join(base, "state"), now: time.Now(),
			docs: make(map[string]*doc), was: make(map[*Batch][]byte)}
		must(t, os.Mkdir(r.dir, 0o700))
		defer r.kill()
		h := &history{rig: r, rt: rt, files: make(map[string]string), packed: make(map[string]bool), clock: time.Now().Add(-time.Hour)}
		r.opts = func(o *Options) {
			o.MaxLine = maxLine
			o.Resume = h.resume
		}
		rt.Repeat(map[string]func(*rapid.T){
			"append":   h.grow,
			"grow":     h.grow,
			"truncate": h.cut,
			"head":     h.editHead,
			"replace":  h.exchange,
			"move":     h.moveFile,
			"pack":     h.pack,
			"delete":   h.remove,
			"hold":     func(*rapid.T) { r.hold = true },
			"release":  func(*rapid.T) { r.hold = false; r.ackSome(len(r.held)) },
			"ack":      func(rt *rapid.T) { r.ackSome(rapid.IntRange(0, len(r.held)).Draw(rt, "acks")) },
			"drain":    func(*rapid.T) { r.now = r.now.Add(3 * time.Second); r.drain() },
			"close":    func(*rapid.T) { h.dropHeld(); r.close() },
			"kill":     func(*rapid.T) { h.crash() },
			"lose":     func(*rapid.T) { h.crash(); os.Remove(r.state) },
			"run":      func(*rapid.T) { h.check() },
		})
		h.check()
	})
}

const maxLine = 10_000

// fataler fails the drawn history, not the test around it.
type fataler struct {
	testing.TB
	rt *rapid.T
}

func (f fataler) Helper()                      {}
func (f fataler) Errorf(s string, args ...any) { f.rt.Fatalf(s, args...) }
func (f fataler) Fatalf(s string, args ...any) { f.rt.Fatalf(s, args...) }
func (f fataler) Fatal(args ...any)            { f.rt.Fatal(args...) }
func (f fataler) Error(args ...any)            { f.rt.Fatal(args...) }

// crash ends the tailer. The caller loses its unacknowledged batches.
func (h *history) crash() {
	if h.tail != nil {
		h.tail.mu.Lock()
		h.tail.takeAcks()
		h.tail.mu.Unlock()
	}
	h.dropHeld()
	h.kill()
}

// dropHeld removes unacknowledged lines from the caller's copy, because they are not durable.
func (h *history) dropHeld() {
	for i := len(h.held) - 1; i >= 0; i-- {
		b := h.held[i]
		d := h.docs[b.File.Stem]
		switch b.Kind {
		case Lines:
			if len(b.Lines) > 0 {
				at := b.Lines[0].Offset - int64(len(b.Lines[0].Before))
				d.content = d.content[:min(int64(len(d.content)), at)]
			}
		case Rewritten:
			if b.Last {
				d.content = h.was[b]
			}
		}
	}
	for _, d := range h.docs {
		d.next, d.partial = nil, false
	}
	h.held = nil
}

func (h *history) resume(f File, _ func() []byte) (Position, bool) {
	d := h.docs[f.Stem]
	if d == nil || len(d.content) == 0 {
		return Position{}, false
	}
	c := d.content
	return Position{Offset: int64(len(c)), Before: c}, true // the whole content, because changes are drawn anywhere
}

func (h *history) pick(rt *rapid.T) (stem string, ok bool) {
	stem = fmt.Sprintf("f%d", rapid.IntRange(0, 2).Draw(rt, "file"))
	_, ok = h.files[stem]
	return stem, ok
}

// some draws content: lines, including long and empty ones, and sometimes an incomplete one.
func (h *history) some(rt *rapid.T) string {
	var b strings.Builder
	for range rapid.IntRange(0, 6).Draw(rt, "lines") {
		h.count++
		n := rapid.SampledFrom([]int{0, 1, 20, 3000, 10_500}).Draw(rt, "bytes")
		fmt.Fprintf(&b, "%d %s%s", h.count, strings.Repeat("x", n), rapid.SampledFrom([]string{"\n", "\r\n", "\n\n \n", "}\n", "\x00\xff\n"}).Draw(rt, "end"))
	}
	if rapid.Bool().Draw(rt, "is torn") {
		h.count++
		fmt.Fprintf(&b, "torn %d %s", h.count, rapid.SampledFrom([]string{"", "}", " \r"}).Draw(rt, "tail"))
	}
	return b.String()
}

func (h *history) touch(stem string) {
	h.clock = h.clock.Add(time.Second)
	os.Chtimes(h.path(h.files[stem]), h.clock, h.clock)
}

func (h *history) grow(rt *rapid.T) {
	stem, ok := h.pick(rt)
	if h.packed[stem] {
		return
	}
	if !ok {
		h.files[stem] = "a/" + stem + ".jsonl"
		must(h.t, os.MkdirAll(h.path("a"), 0o700))
	}
	h.append(h.files[stem], h.some(rt))
	h.touch(stem)
}

func (h *history) cut(rt *rapid.T) {
	stem, ok := h.pick(rt)
	if !ok || h.packed[stem] {
		return
	}
	info, err := os.Stat(h.path(h.files[stem]))
	must(h.t, err)
	must(h.t, os.Truncate(h.path(h.files[stem]), rapid.Int64Range(0, info.Size()).Draw(rt, "to")))
	h.touch(stem)
}

// editHead changes the beginning of a file in place and appends to it.
func (h *history) editHead(rt *rapid.T) {
	stem, ok := h.pick(rt)
	if !ok || h.packed[stem] {
		return
	}
	f, err := os.OpenFile(h.path(h.files[stem]), os.O_RDWR, 0)
	must(h.t, err)
	h.count++
	if info, _ := f.Stat(); info.Size() > 0 {
		f.WriteAt([]byte{byte('A' + h.count%26)}, 0)
	}
	f.Close()
	h.append(h.files[stem], h.some(rt))
	h.touch(stem)
}

// exchange replaces a file with other or equal content by a rename.
func (h *history) exchange(rt *rapid.T) {
	stem, ok := h.pick(rt)
	if !ok || h.packed[stem] {
		return
	}
	content, err := os.ReadFile(h.path(h.files[stem]))
	must(h.t, err)
	switch rapid.SampledFrom([]string{"same", "middle", "other", "more"}).Draw(rt, "content") {
	case "middle":
		if len(content) > 0 {
			h.count++
			content[len(content)/2] = byte('A' + h.count%26)
		}
	case "other":
		content = []byte(h.some(rt))
	case "more":
		content = append(content, h.some(rt)...)
	}
	h.replace(h.files[stem], string(content))
	h.touch(stem)
}

func (h *history) moveFile(rt *rapid.T) {
	stem, ok := h.pick(rt)
	if !ok {
		return
	}
	to := rapid.SampledFrom([]string{"a", "b", "b/c"}).Draw(rt, "folder") + "/" + filepath.Base(h.files[stem])
	h.rename(h.files[stem], to)
	h.files[stem] = to
}

// pack compresses or decompresses a file.
func (h *history) pack(rt *rapid.T) {
	stem, ok := h.pick(rt)
	if !ok {
		return
	}
	from := h.files[stem]
	content := h.content(stem)
	to, is := strings.CutSuffix(from, ".zst")
	if !is {
		to += ".zst"
		content = []byte(pack(string(content)))
	}
	h.write(to, string(content))
	if rapid.Bool().Draw(rt, "is seen") && !h.hold {
		h.drain()
	}
	must(h.t, os.Remove(h.path(from)))
	h.files[stem], h.packed[stem] = to, !is
	h.touch(stem)
}

func (h *history) remove(rt *rapid.T) {
	stem, ok := h.pick(rt)
	if !ok {
		return
	}
	must(h.t, os.Remove(h.path(h.files[stem])))
	delete(h.files, stem)
	delete(h.packed, stem)
}

func (h *history) content(stem string) []byte {
	content, err := os.ReadFile(h.path(h.files[stem]))
	must(h.t, err)
	if h.packed[stem] {
		content = mustUnpack(h.t, content)
	}
	return content
}

// check advances the time by a day and compares the files with the caller's copies.
func (h *history) check() {
	h.hold = false
	if h.tail != nil {
		h.ack()
	}
	h.run()
	for stem := range h.files {
		want := h.content(stem)
		if d := h.docs[stem]; d != nil {
			want = want[:len(delivered(want, d.content))]
			if !bytes.Equal(d.content, want) || d.partial {
				h.rt.Fatalf("the delivered content of %s is\n%s, want\n%s", h.files[stem], brief(string(d.content)), brief(string(want)))
			}
		} else if len(delivered(want, nil)) > 0 {
			h.rt.Fatalf("nothing of %s was delivered, want %s", h.files[stem], brief(string(want)))
		}
	}
}

// delivered returns the deliverable part of content: all up to the last line feed, and the rest if it is complete, or
// was complete when it was delivered.
func delivered(content, have []byte) []byte {
	last := bytes.LastIndexByte(content, '\n') + 1
	for len(content)-last >= maxLine+2 { // parts of a long line are delivered before its end
		last += maxLine
	}
	if rest := content[last:]; bytes.HasSuffix(rest, []byte("}")) || blank(rest) {
		last = len(content)
	}
	if len(have) > last && bytes.HasPrefix(content, have) && (have[len(have)-1] == '}' || blank(have[last:])) {
		last = len(have)
	}
	return content[:last]
}

func (r *rig) ackSome(n int) {
	for _, b := range r.held[:n] {
		r.tail.Ack(b)
	}
	r.held = slices.Clone(r.held[n:])
}

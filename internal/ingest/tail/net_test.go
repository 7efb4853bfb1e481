package tail

import (
	"errors"
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

// drawnRig returns a rig for a drawn program, and removes its files at the end.
func drawnRig(t *testing.T, rt *rapid.T, opts func(*Options)) (r *rig, end func()) {
	base, err := os.MkdirTemp("", "tail-net")
	must(t, err)
	r = &rig{t: fataler{t, rt}, dir: filepath.Join(base, "followed"), state: filepath.Join(base, "state"), now: time.Now(), opts: opts,
		docs: make(map[string]*doc), was: make(map[*Batch][]byte)}
	must(t, os.Mkdir(r.dir, 0o700))
	return r, func() { r.kill(); os.RemoveAll(base) }
}

// An ackLaw is a program of deliveries and acknowledgements.
type ackLaw struct {
	*history
	first map[string]bool  // by stem: nothing was delivered since the last start
	saved map[string]int64 // by stem: the state has at least this position
	sizes []savedState     // since the state was rewritten
}

// savedState is the size of the state after it was written, and the positions in it.
type savedState struct {
	size int64
	at   map[string]int64
}

// acked returns the positions up to which everything is acknowledged.
func (l *ackLaw) acked() map[string]int64 {
	at := make(map[string]int64)
	for stem, d := range l.docs {
		at[stem] = int64(len(d.content))
	}
	for _, b := range l.held {
		at[b.File.Stem] = min(at[b.File.Stem], b.Lines[0].Offset-int64(len(b.Lines[0].Before)))
	}
	return at
}

// deliver receives the current deliveries. The first one of a file follows what the state has, and nothing that is
// not acknowledged is left out: see rig.add.
func (l *ackLaw) deliver() {
	if l.tail == nil {
		l.open()
		l.sizes = nil // the state was rewritten
		l.noteSaved(l.saved)
	}
	for isIdle := false; !isIdle; {
		var b *Batch
		if b, isIdle = l.tail.step(); b == nil {
			continue
		}
		stem := b.File.Stem
		if at := b.Lines[0].Offset - int64(len(b.Lines[0].Before)); l.first[stem] && at < l.saved[stem] {
			l.t.Fatalf("%s: delivered again from %d, but the state has %d", b.File.Rel, at, l.saved[stem])
		}
		l.first[stem] = false
		l.take(b)
	}
}

// save lets the time of the next write of the state come.
func (l *ackLaw) save() {
	l.now = l.now.Add(2 * time.Second)
	l.deliver()
	l.noteSaved(l.acked())
}

func (l *ackLaw) noteSaved(at map[string]int64) {
	info, err := os.Stat(l.state)
	must(l.t, err)
	l.saved = at
	l.sizes = append(l.sizes, savedState{info.Size(), at})
}

// restart forgets everything that is not acknowledged.
func (l *ackLaw) restart() {
	l.dropHeld()
	l.kill()
	l.first = make(map[string]bool)
	for stem := range l.docs {
		l.first[stem] = true
	}
}

// cut truncates the state.
func (l *ackLaw) cut(to int64) {
	must(l.t, os.Truncate(l.state, to))
	l.saved = nil
	for _, s := range l.sizes {
		if s.size <= to {
			l.saved = s.at
		}
	}
	l.sizes = nil
}

// tear leaves the beginning of a record at the end of the state, as a write that was cut short does.
func (l *ackLaw) tear(bytes int) {
	if l.tail == nil {
		return
	}
	line, err := encode(record{Root: "r", Path: []byte("f0.jsonl")})
	must(l.t, err)
	f, err := os.OpenFile(l.state, os.O_WRONLY|os.O_APPEND, 0)
	must(l.t, err)
	_, err = f.Write(line[:min(bytes, len(line)-2)])
	must(l.t, errors.Join(err, f.Close()))
}

func TestAcks(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	t.Run("net G4 what is not acknowledged comes again, and what the state has does not", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			r, end := drawnRig(t, rt, nil)
			defer end()
			l := &ackLaw{history: &history{rig: r, rt: rt}, first: make(map[string]bool)}
			r.hold = true
			lines := 0
			rt.Repeat(map[string]func(*rapid.T){
				"grow": func(rt *rapid.T) {
					for range rapid.IntRange(1, 3).Draw(rt, "appends") {
						lines++
						r.append(fmt.Sprintf("f%d.jsonl", rapid.IntRange(0, 2).Draw(rt, "file")), fmt.Sprintf("%d%s\n", lines, strings.Repeat("x", rapid.SampledFrom([]int{0, 5000}).Draw(rt, "bytes"))))
						r.now = r.now.Add(6 * time.Second)
						l.deliver()
					}
				},
				"acknowledge": func(rt *rapid.T) {
					for range rapid.IntRange(0, len(r.held)).Draw(rt, "batches") {
						i := rapid.IntRange(0, len(r.held)-1).Draw(rt, "batch")
						r.tail.Ack(r.held[i])
						r.held = slices.Delete(r.held, i, i+1)
					}
				},
				"save": func(*rapid.T) { l.save() },
				"save, torn": func(rt *rapid.T) {
					l.tear(rapid.IntRange(1, 40).Draw(rt, "bytes"))
				},
				"kill": func(*rapid.T) { l.restart() },
				"close": func(rt *rapid.T) {
					l.deliver()
					at, held := l.acked(), r.held
					r.close()
					r.held = held
					l.noteSaved(at)
					l.restart()
				},
				"cut": func(rt *rapid.T) {
					l.save()
					l.restart()
					info, err := os.Stat(r.state)
					must(r.t, err)
					l.cut(rapid.Int64Range(0, info.Size()).Draw(rt, "to"))
				},
				"": func(*rapid.T) {},
			})
			l.save()
			r.hold = false
			r.ack()
			r.run()
			for n := range 3 {
				stem := fmt.Sprint("f", n)
				want, err := os.ReadFile(r.path(stem + ".jsonl"))
				if err == nil {
					r.mustHave(stem, string(want))
				}
			}
		})
	})
}

func TestReplaced(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	t.Run("net G5 a file with other content between the same beginning and end is rewritten", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			r, end := drawnRig(t, rt, nil)
			defer end()
			n := rapid.SampledFrom([]int{50, 5000, 20_000}).Draw(rt, "bytes")
			begin, last := text("begin", n), text("end", n)
			content := begin + text("a", 100) + last
			r.write("a.jsonl", content)
			r.run()
			r.mustHave("a", content)
			switch rapid.IntRange(0, 2).Draw(rt, "stop") {
			case 1:
				r.close()
			case 2:
				r.kill()
			}
			content = begin + text("b", 100) + last
			node := nodeOfPath(r, "a.jsonl")
			time.Sleep(10 * time.Millisecond) // so that the times of the two files differ
			switch rapid.SampledFrom([]string{"in place", "by rename", "deleted"}).Draw(rt, "how") {
			case "in place":
				r.write("a.jsonl", content)
			case "by rename":
				content += rapid.SampledFrom([]string{"", "more\n"}).Draw(rt, "more")
				r.replace("a.jsonl", content)
			case "deleted":
				content += rapid.SampledFrom([]string{"", "more\n"}).Draw(rt, "more")
				for range 10 { // most systems use the inode again
					must(r.t, os.Remove(r.path("a.jsonl")))
					if r.write("a.jsonl", content); nodeOfPath(r, "a.jsonl") == node {
						break
					}
				}
			}
			r.run()
			r.mustHave("a", content)
			r.mustBe("rewritten a.jsonl")
		})
	})
	t.Run("net G5 a file that is moved is never gone, however late its folder is looked at", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			slow := time.Duration(rapid.SampledFrom([]int{0, 0, 1}).Draw(rt, "slow")) * time.Second // of each listing
			var r *rig
			r, end := drawnRig(t, rt, func(o *Options) {
				o.Grace = time.Duration(rapid.SampledFrom([]int{0, 1, 2, 4}).Draw(rt, "grace")) * time.Second
				o.Wants = func(_, rel string) bool {
					if !strings.HasSuffix(rel, ".tmp") {
						return true
					}
					r.now = r.now.Add(slow)
					return false
				}
			})
			defer end()
			folders := []string{"a", "b", "c"}
			for _, name := range folders {
				r.write(name+"/a.tmp", "")
				if rapid.Bool().Draw(rt, "is old") { // and is looked at less often
					at := r.now.Add(-48 * time.Hour)
					must(r.t, os.Chtimes(r.path(name), at, at))
				}
			}
			at, content := "a/x.jsonl", text("x", 3000)
			r.write(at, content)
			r.run()
			said := at
			for range rapid.IntRange(1, 4).Draw(rt, "moves") {
				to := rapid.SampledFrom(append(folders, "new", "b/new")).Draw(rt, "folder") + "/x.jsonl"
				if to == at {
					continue
				}
				r.rename(at, to)
				at = to
				if rapid.Bool().Draw(rt, "grows") {
					r.append(at, "more\n")
					content += "more\n"
				}
				for range rapid.IntRange(0, 20).Draw(rt, "steps") {
					r.now = r.now.Add(time.Duration(rapid.IntRange(100, 1500).Draw(rt, "ms")) * time.Millisecond)
					r.drain()
				}
			}
			r.run()
			for _, e := range r.events {
				_, to, isMoved := strings.Cut(e, " to ")
				if !isMoved {
					rt.Errorf("events are %q, want only moves", r.events)
				}
				said = to
			}
			if said != at {
				rt.Errorf("the file is %s, and the last event said %s: %q", at, said, r.events)
			}
			r.mustHave("x", content)
		})
	})
	t.Run("net G5 a file that is back is there in the state, and is not told again", func(t *testing.T) {
		r := newRig(t, nil)
		r.write("a", "one\n")
		r.run()
		must(t, os.Rename(r.path("a"), r.state+".away"))
		r.run()
		must(t, os.Rename(r.state+".away", r.path("a")))
		r.run()
		r.mustBe("gone a", "moved a to a")
		r.close()
		known, err := ReadState(r.state)
		if err != nil || known["r"]["a"].Gone {
			t.Errorf("the state says %+v, %v", known, err)
		}
		r.run()
		r.mustBe()
	})
}

func nodeOfPath(r *rig, rel string) node {
	info, err := os.Stat(r.path(rel))
	must(r.t, err)
	return nodeOf(info)
}

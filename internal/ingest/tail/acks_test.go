package tail

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/testkit"
)

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

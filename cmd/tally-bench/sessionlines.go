package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tallylog/tally/cmd/internal/cli"
)

// Orders of the sessions that events belong to, and the events' identities.
const (
	inTurn   = "turn"   // a round has an event of each session
	inSeries = "seq"    // all events of a session, then those of the next
	atRandom = "random" // each event is of a random session; the numbers repeat in each run

	freshIDs = "fresh" // random UUIDs
	namedIDs = "named" // the session and a number
)

// traffic is a series of events of many sessions.
type traffic struct {
	Sessions int
	Each     int // events of a session; the mean, if the order is random
	Order    string
	IDs      string
}

// minTraffic is the least number of events for a default of Each.
const minTraffic = 100_000

// withDefaults returns the traffic with enough events of each session.
func (t traffic) withDefaults() traffic {
	t.Each = cmp.Or(t.Each, max(2, minTraffic/t.Sessions))
	return t
}

func (t traffic) check() error {
	switch {
	case t.Sessions < 1 || t.Each < 0:
		return cli.Usagef("want --sessions and --each of at least 1")
	case t.Order != inTurn && t.Order != inSeries && t.Order != atRandom:
		return cli.Usagef("--order %q: want turn, seq or random", t.Order)
	case t.IDs != freshIDs && t.IDs != namedIDs:
		return cli.Usagef("--ids %q: want fresh or named", t.IDs)
	}
	return nil
}

// events returns the number of events.
func (t traffic) events() int { return t.Sessions * t.Each }

// saidText is the text of each turn, after the numbers of its session and event.
var saidText = strings.Repeat("The quick brown fox jumps over the lazy dog, and the agent answers with words. ", 4)

// lineMaker makes the lines of a traffic, in order.
type lineMaker struct {
	traffic
	next   int
	random *rand.Rand
	buf    []byte
}

func newLineMaker(t traffic) *lineMaker {
	return &lineMaker{traffic: t, random: rand.New(rand.NewPCG(1, 2))}
}

// session returns the session of event i.
func (m *lineMaker) session(i int) int {
	switch m.Order {
	case inSeries:
		return i / m.Each
	case atRandom:
		return m.random.IntN(m.Sessions)
	}
	return i % m.Sessions
}

// line returns the next line, with its line feed, or nil at the end. It is valid until the next call.
func (m *lineMaker) line() []byte {
	if m.next == m.events() {
		return nil
	}
	i := m.next
	m.next++
	session := m.session(i)
	b := append(m.buf[:0], `{"specversion":"1.0","source":"urn:bench","type":"tally.turn.appended.v1","subject":"session/s`...)
	b = append(strconv.AppendInt(b, int64(session), 10), `","datacontenttype":"application/json",`...)
	if m.IDs == namedIDs {
		b = append(strconv.AppendInt(append(b, `"id":"s`...), int64(session), 10), '-')
		b = strconv.AppendInt(b, int64(i), 10)
	} else {
		high, low := rand.Uint64(), rand.Uint64()
		b = fmt.Appendf(b, `"id":"%08x-%04x-4%03x-8%03x-%012x`, high>>32, high>>16&0xffff, high&0xfff, low>>48&0xfff, low&0xffffffffffff)
	}
	b = append(b, `",`...)
	role := "user"
	if i/m.Sessions%2 == 1 {
		role = "assistant"
	}
	b = append(append(append(b, `"data":{"entries":[{"thread":"main","turn":{"role":"`...), role...), `","content":"`...)
	b = append(strconv.AppendInt(b, int64(session), 10), ' ')
	b = append(append(strconv.AppendInt(b, int64(i), 10), ' '), saidText...)
	m.buf = append(b, `"}}]}}`+"\n"...)
	return m.buf
}

// delays is a histogram of microseconds. A bucket is at most 1/64 of its value wide.
type delays struct {
	counts [64 * 40]int64
	all    int64
}

// bucket returns the bucket of a number of microseconds.
func bucket(micros int64) int {
	v := uint64(max(micros, 0))
	shift := max(bits.Len64(v)-7, 0)
	return 64*shift + int(v>>shift)
}

// least returns the least number of microseconds in a bucket.
func least(bucket int) int64 {
	shift := max(bucket/64-1, 0)
	return int64(bucket-64*shift) << shift
}

func (d *delays) add(took time.Duration) {
	d.counts[min(bucket(took.Microseconds()), len(d.counts)-1)]++
	d.all++
}

// quantile returns the delay that a share of all does not exceed, rounded down to its bucket.
func (d *delays) quantile(share float64) int64 {
	rank := min(int64(share*float64(d.all)), d.all-1)
	for n, count := range d.counts {
		if rank -= count; rank < 0 {
			return least(n)
		}
	}
	return 0
}

// maxOpenLines bounds the lines that were read and not acknowledged yet: those in flight, and those in buffers.
const maxOpenLines = 1024

// feed is the input and the output of a command that reads lines and prints an acknowledgement for each, in their
// order. It measures the time between both. After the last line, the input waits until rested is closed.
type feed struct {
	lines  *lineMaker
	rest   []byte // of the current line
	rested chan struct{}
	fail   context.CancelCauseFunc // called with a line that was refused

	begin func()            // called before the first line is read
	end   func(last []byte) // called with the last acknowledgement

	mu     sync.Mutex
	read   int
	acked  int
	at     [maxOpenLines]time.Time // of the lines without an acknowledgement
	delays delays
}

// Read implements io.Reader. It returns at most a line, so that its time is the time at which the command wants it.
func (f *feed) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		if f.lines.next == 0 {
			f.begin()
		}
		if f.rest = f.lines.line(); f.rest == nil {
			<-f.rested
			return 0, io.EOF
		}
		f.mu.Lock()
		f.at[f.read%maxOpenLines] = time.Now()
		f.read++
		f.mu.Unlock()
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// Write implements io.Writer. It takes an acknowledgement.
func (f *feed) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.acked == f.read || f.read-f.acked > maxOpenLines {
		return 0, fmt.Errorf("acknowledgement %d for %d lines", f.acked+1, f.read)
	}
	f.delays.add(time.Since(f.at[f.acked%maxOpenLines]))
	if f.acked++; f.acked == f.lines.events() {
		f.end(line)
	}
	return len(line), nil
}

// complaints returns the command's standard error. The first text on it ends the run, unless it is a warning: a busy
// machine is slow.
func (f *feed) complaints() io.Writer { return complaintWriter{f.fail} }

type complaintWriter struct{ fail context.CancelCauseFunc }

func (w complaintWriter) Write(text []byte) (int, error) {
	if !bytes.Contains(text, []byte("level=WARN")) {
		w.fail(errors.New(strings.TrimSpace(string(text))))
	}
	return len(text), nil
}

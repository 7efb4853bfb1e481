package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// Gate is a log.Backend at which publications stop while it is shut: each once before it is stored, and again before
// its answer. If the ctx of a publication ends at a stop, its outcome is unknown, and it goes on when the Gate opens.
type Gate struct {
	log.Backend
	Deaf bool // a publication is answered at its end, even if its ctx ends before

	mu    sync.Mutex
	shut  bool
	stops []chan struct{} // of the publications that wait, in the order in which they came
}

// Shut makes publications stop from now on.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
}

// Open lets all publications go on.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
	for _, s := range g.stops {
		close(s)
	}
	g.stops = nil
}

// Waiting returns the number of publications that wait.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.stops)
}

// Let lets one of the waiting publications go on to its next stop.
func (g *Gate) Let(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.stops[i])
	g.stops = slices.Delete(g.stops, i, i+1)
}

// stop returns a channel that is closed when a publication may go on.
func (g *Gate) stop() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := make(chan struct{})
	if g.shut {
		g.stops = append(g.stops, s)
	} else {
		close(s)
	}
	return s
}

// Publish implements log.Backend.
func (g *Gate) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	p = copied(p)
	var receipt log.Receipt
	var err error
	stored, over := g.stop(), make(chan struct{})
	go func() {
		defer close(over)
		<-stored
		receipt, err = g.Backend.Publish(context.WithoutCancel(ctx), p)
		<-g.stop()
	}()
	gone := ctx.Done()
	if g.Deaf {
		gone = nil
	}
	select {
	case <-over:
		return receipt, err
	case <-gone:
		return log.Receipt{}, fmt.Errorf("%w: %v", log.ErrUnknown, ctx.Err())
	}
}

// copied returns a publication with data of its own, as a connection sends it.
func copied(p log.Publication) log.Publication {
	p.Writes = slices.Clone(p.Writes)
	for i, w := range p.Writes {
		p.Writes[i].Messages = slices.Clone(w.Messages)
		for j, m := range w.Messages {
			p.Writes[i].Messages[j].Data = bytes.Clone(m.Data)
		}
	}
	return p
}

// Crowd is many callers of a log whose backend is a [Gate]. A test begins calls, ends their contexts, and moves the
// Gate. Finish requires that every call that did not give up is stored, in the order of the calls, that the others left
// nothing behind, and that the log closes.
//
// A Crowd is used in a bubble of testing/synctest. Between two steps nothing moves any more, so a call that ends because
// time passes has slept although something could have woken it.
type Crowd struct {
	Log     *log.Log
	Gate    *Gate
	Between func() error // unless nil, called after each step

	// KeepsTurns requires that an AppendAll that gave up while it was being stored keeps its place in the order.
	KeepsTurns bool

	calls []*call
}

// Call is an append to one subject, or to several.
type Call struct {
	Subjects []events.Subject
	Each     int  // events for each subject; 0: one
	Size     int  // of each event, in bytes, at least
	Late     bool // its context is over when it begins
}

// call is a Call of a Crowd.
type call struct {
	number int
	subs   []events.Subject
	each   int
	giveUp context.CancelFunc
	gaveUp bool
	over   bool // the fields below are set
	acks   []log.Ack
	err    error
	unseen error // a read after the acknowledgement did not show it
}

func (c *call) String() string {
	names := make([]string, len(c.subs))
	for i, sub := range c.subs {
		names[i] = sub.ID
	}
	return fmt.Sprintf("call %d to %s", c.number, strings.Join(names, " and "))
}

// Begin begins a call.
func (c *Crowd) Begin(what Call) error {
	ctx, cancel := context.WithCancel(context.Background())
	k := &call{number: len(c.calls), subs: what.Subjects, each: max(what.Each, 1), giveUp: cancel, gaveUp: what.Late}
	c.calls = append(c.calls, k)
	data := fmt.Appendf(nil, "%d%*s", k.number, what.Size, "")
	parts := make([]log.Part, len(k.subs))
	for i, sub := range k.subs {
		event := events.Event{Source: "test://crowd", Type: callType, Data: data}
		parts[i] = log.Part{Subject: sub, Events: slices.Repeat([]events.Event{event}, k.each)}
	}
	if k.gaveUp {
		cancel()
	}
	return c.step(func() {
		go func() {
			k.run(ctx, c.Log, parts)
			clear(data) // which is the caller's again
			k.over = true
		}()
	})
}

// callType is the type of all events.
const callType = "com.example.call"

func (c *call) run(ctx context.Context, l *log.Log, parts []log.Part) {
	if len(parts) > 1 {
		c.acks, c.err = l.AppendAll(ctx, parts...)
	} else {
		c.acks = make([]log.Ack, 1)
		c.acks[0], c.err = l.Append(ctx, parts[0].Subject, log.Any, parts[0].Events...)
	}
	if c.err != nil {
		return
	}
	for i, ack := range c.acks {
		at := events.Offset(0)
		for rec, err := range l.Read(context.Background(), events.Range{Subject: c.subs[i], After: ack.First - 1}) {
			c.unseen = errors.Join(c.unseen, err)
			at = rec.Offset
		}
		if at < ack.Last {
			c.unseen = errors.Join(c.unseen, fmt.Errorf("it is acknowledged at %+v, and a read of %s ends at %v", ack, c.subs[i].ID, at))
		}
	}
}

// Undecided returns the numbers of the calls that are neither over nor given up.
func (c *Crowd) Undecided() (list []int) {
	for _, k := range c.calls {
		if !k.over && !k.gaveUp {
			list = append(list, k.number)
		}
	}
	return list
}

// GiveUp ends the context of a call, and at the same moment lets publications at the Gate go on. An AppendAll returns at
// once, and so does an Append, unless the Gate is deaf.
func (c *Crowd) GiveUp(number int, let ...int) error {
	k := c.calls[number]
	k.gaveUp = true
	if err := c.step(func() {
		for _, i := range let {
			go c.Gate.Let(i)
		}
		k.giveUp()
	}); err != nil {
		return err
	}
	if !k.over && (len(k.subs) > 1 || !c.Gate.Deaf) {
		return fmt.Errorf("%v has given up and does not return", k)
	}
	return nil
}

// Let lets one of the publications at the Gate go on.
func (c *Crowd) Let(i int) error { return c.step(func() { c.Gate.Let(i) }) }

// A nap is longer than any interval at which the log does something by itself.
const nap = 2 * time.Second

// step does something, and waits until nothing moves. After that, no call may end because time passes.
func (c *Crowd) step(do func()) error {
	do()
	synctest.Wait()
	over := make([]bool, len(c.calls))
	for i, k := range c.calls {
		over[i] = k.over
	}
	time.Sleep(nap)
	synctest.Wait()
	for i, k := range c.calls {
		if k.over != over[i] {
			return fmt.Errorf("%v slept until a tick: %+v, %v", k, k.acks, k.err)
		}
	}
	if c.Between != nil {
		return c.Between()
	}
	return nil
}

// Finish opens the Gate, checks all calls, appends to each subject once more, checks again, and closes the log.
func (c *Crowd) Finish() error {
	if err := c.step(c.Gate.Open); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	for _, sub := range c.subjects() {
		if err := c.Begin(Call{Subjects: []events.Subject{sub}}); err != nil {
			return err
		}
	}
	if err := c.check(); err != nil {
		return fmt.Errorf("when all was over: %w", err)
	}
	closed := false
	go func() {
		_ = c.Log.Close()
		closed = true
	}()
	if synctest.Wait(); !closed {
		return errors.New("the log does not close")
	}
	return nil
}

// Drop ends the contexts of all calls, and opens the Gate: nothing of a test that failed waits any longer.
func (c *Crowd) Drop() {
	for _, k := range c.calls {
		k.giveUp()
	}
	c.Gate.Open()
}

func (c *Crowd) subjects() (list []events.Subject) {
	for _, k := range c.calls {
		for _, sub := range k.subs {
			if !slices.Contains(list, sub) {
				list = append(list, sub)
			}
		}
	}
	return list
}

// check compares the outcomes of all calls with the log.
func (c *Crowd) check() error {
	there := make(map[events.Subject]map[int][]events.Offset)
	for _, sub := range c.subjects() {
		var err error
		if there[sub], err = c.history(sub); err != nil {
			return err
		}
	}
	for _, k := range c.calls {
		if err := k.check(there); err != nil {
			return fmt.Errorf("%v: %w", k, err)
		}
	}
	return nil
}

// history returns the offsets of the calls in the history of a subject. Those that were acknowledged have their order,
// and with KeepsTurns each AppendAll has it.
func (c *Crowd) history(sub events.Subject) (map[int][]events.Offset, error) {
	at, last := make(map[int][]events.Offset), -1
	for rec, err := range c.Log.Read(context.Background(), events.Range{Subject: sub}) {
		number, err := callOf(rec, err)
		if err != nil {
			return nil, err
		}
		at[number] = append(at[number], rec.Offset)
		if k := c.calls[number]; k.over && (k.err == nil || c.KeepsTurns && len(k.subs) > 1) {
			if number < last {
				return nil, fmt.Errorf("%v is stored behind call %d", k, last)
			}
			last = number
		}
	}
	return at, nil
}

// callOf returns the number of the call that appended a record.
func callOf(rec events.Record, err error) (number int, _ error) {
	if err == nil {
		_, err = fmt.Sscan(string(rec.Data), &number)
	}
	return number, err
}

// Whole requires that a read of everything sees all events of an AppendAll, or nothing of it.
func (c *Crowd) Whole() error {
	seen := make([]int, len(c.calls))
	for rec, err := range c.Log.Read(context.Background(), events.Range{}) {
		if err == nil && rec.Type != callType {
			continue
		}
		number, err := callOf(rec, err)
		if err != nil {
			return err
		}
		seen[number]++
	}
	for i, n := range seen {
		if k := c.calls[i]; len(k.subs) > 1 && n != 0 && n != len(k.subs)*k.each {
			return fmt.Errorf("a read sees %d of %d events of %v", n, len(k.subs)*k.each, k)
		}
	}
	return nil
}

func (c *call) check(there map[events.Subject]map[int][]events.Offset) error {
	if !c.over {
		return errors.New("it waits, and nothing is under way")
	}
	stored := 0
	for _, sub := range c.subs {
		stored += len(there[sub][c.number])
	}
	switch {
	case c.err != nil && !c.gaveUp:
		return fmt.Errorf("it did not give up: %w", c.err)
	case stored != 0 && stored != len(c.subs)*c.each:
		return fmt.Errorf("%d of %d events are stored: %w", stored, len(c.subs)*c.each, c.err)
	case errors.Is(c.err, log.ErrUnknown):
		return nil
	case c.err != nil && stored > 0:
		return fmt.Errorf("it is stored: %w", c.err)
	case c.err == nil && stored == 0:
		return errors.New("it is acknowledged, and not stored")
	case c.err != nil:
		return nil
	}
	for i, sub := range c.subs {
		if at := there[sub][c.number]; c.acks[i].First != at[0] || c.acks[i].Last != at[len(at)-1] {
			return fmt.Errorf("it is acknowledged at %+v, and stored at %v", c.acks[i], at)
		}
	}
	return c.unseen
}

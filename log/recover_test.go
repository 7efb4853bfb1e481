package log_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/schedule"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// lossy is a backend in memory with a disk. Messages that were not synced may be lost while a log recovers.
type lossy struct {
	t       *testing.T
	reached func(point string)

	quiet sync.RWMutex // held for reading by publications

	mu     sync.Mutex // guards the fields below
	mem    *memlog.Backend
	stored []kept
	synced int  // messages on disk
	sick   bool // syncs fail
	full   bool // while a log recovers, nothing can be stored
}

// kept is a stored message.
type kept struct {
	subject string
	out     log.Outgoing
	event   events.Event
}

func newLossy(t *testing.T, reached func(string)) *lossy {
	return &lossy{t: t, reached: reached, mem: memlog.New(memlog.Config{})}
}

func (d *lossy) now() *memlog.Backend {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mem
}

// sync implements log.Sync.
func (d *lossy) sync(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sick {
		return errors.New("input/output error")
	}
	d.synced = len(d.stored)
	return nil
}

// fails makes syncs fail until the log recovers.
func (d *lossy) fails() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sick = true
}

func (d *lossy) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	d.reached("before a publication")
	receipt, err := d.publish(ctx, p)
	d.reached("after a publication")
	return receipt, err
}

func (d *lossy) publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	d.quiet.RLock()
	defer d.quiet.RUnlock()
	if ctx.Err() != nil {
		return log.Receipt{}, log.ErrUnknown
	}
	return d.store(ctx, p)
}

func (d *lossy) store(ctx context.Context, p log.Publication) (log.Receipt, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	receipt, err := d.mem.Publish(ctx, p)
	if err != nil || receipt.Duplicate {
		return receipt, err
	}
	for _, w := range p.Writes {
		for _, out := range w.Messages {
			e, err := events.DecodeMessage(w.Subject, out.Fields(), out.Data)
			if err != nil {
				d.t.Error(err)
			}
			d.checkRedo(e)
			d.stored = append(d.stored, kept{w.Subject, out, e})
		}
	}
	return receipt, nil
}

// checkRedo checks that the record from which a batch is completed is stored before the batch. The ids of its events
// begin with "batch". The caller holds mu.
func (d *lossy) checkRedo(e events.Event) {
	isRedo := func(k kept) bool { return bytes.Contains(k.out.Data, fmt.Appendf(nil, "%q", e.ID)) }
	if strings.HasPrefix(e.ID, "batch") && !slices.ContainsFunc(d.stored, isRedo) {
		d.t.Errorf("%s is stored, and nothing from which its batch could be completed", e.ID)
	}
}

// lose drops the messages behind the first n, and the disk works again.
func (d *lossy) lose(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mem.Close() // cursors end
	d.mem, d.stored, d.sick = memlog.New(memlog.Config{}), d.stored[:n], false
	for _, k := range d.stored {
		if _, err := d.mem.Publish(context.Background(), log.Publication{Writes: []log.Write{{Subject: k.subject, Messages: []log.Outgoing{k.out}}}}); err != nil {
			d.t.Error(err)
		}
	}
}

// Quiet runs work while nothing is published.
func (d *lossy) Quiet(work func(publish func(context.Context, log.Publication) (log.Receipt, error)) error) error {
	d.quiet.Lock()
	defer d.quiet.Unlock()
	return work(func(ctx context.Context, p log.Publication) (log.Receipt, error) {
		d.mu.Lock()
		full := d.full
		d.mu.Unlock()
		if full {
			return log.Receipt{}, log.ErrFull
		}
		return d.store(ctx, p)
	})
}

// fills makes recoveries find no room, or find it again.
func (d *lossy) fills(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

func (d *lossy) Scan(ctx context.Context, q log.Query) (log.Cursor, error) {
	d.reached("before a scan")
	defer d.reached("after the beginning of a scan")
	cur, err := d.now().Scan(ctx, q)
	if q.Live && err == nil {
		cur = following{cur, d.reached}
	}
	return cur, err
}

// following is a live cursor of a lossy disk.
type following struct {
	log.Cursor
	reached func(string)
}

func (f following) Next(ctx context.Context) (log.Message, error) {
	m, err := f.Cursor.Next(ctx)
	if err == nil {
		f.reached("after a new record")
	}
	return m, err
}

func (d *lossy) Get(ctx context.Context, at events.Offset) (log.Message, error) {
	defer d.reached("after a look at a record")
	return d.now().Get(ctx, at)
}

func (d *lossy) Last(ctx context.Context, subject string) (log.Message, error) {
	defer d.reached("after a look at the last record")
	return d.now().Last(ctx, subject)
}

func (d *lossy) State(ctx context.Context) (log.State, error) { return d.now().State(ctx) }

func (d *lossy) Subjects(ctx context.Context, filter string) (map[string]uint64, error) {
	return d.now().Subjects(ctx, filter)
}

func (d *lossy) Close() error { return nil }

// ids returns the places of all events, without the log's own records.
func (d *lossy) ids() map[string][]events.Offset {
	d.mu.Lock()
	defer d.mu.Unlock()
	places := make(map[string][]events.Offset)
	for i, k := range d.stored {
		if k.event.Source == "test://log" {
			places[k.event.ID] = append(places[k.event.ID], events.Offset(i+1))
		}
	}
	return places
}

// recovering is a log on a lossy disk, with what it promised.
type recovering struct {
	t *testing.T
	d *lossy
	l *log.Log

	mu    sync.Mutex // guards acked
	acked map[string]events.Offset
}

func newRecovering(t *testing.T, reached func(string)) *recovering {
	d := newLossy(t, reached)
	l, err := log.OpenOn(t.Context(), d, log.Config{AckWait: testkit.Patience(5 * time.Second), Host: log.Host{Owner: true, Sync: d.sync}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &recovering{t: t, d: d, l: l, acked: make(map[string]events.Offset)}
}

// recover loses a share, from 0 to 1, of the records that are not on disk. Of each batch all is there afterwards, or nothing.
func (r *recovering) recover(share float64) {
	err := r.l.Recover(context.Background(), func() error {
		r.d.mu.Lock()
		unsynced := len(r.d.stored) - r.d.synced
		n := len(r.d.stored) - int(share*float64(unsynced)+0.5)
		r.d.mu.Unlock()
		r.d.lose(n)
		return nil
	})
	if err != nil {
		r.t.Errorf("recover: %v", err)
	}
}

// halves checks that of each batch all is stored, or nothing.
func (r *recovering) halves(sizes map[string]int) {
	have := make(map[string]int)
	for id := range r.d.ids() {
		if batch, _, isBatch := strings.Cut(id, "."); isBatch {
			have[batch]++
		}
	}
	for batch, n := range have {
		if n != sizes[batch] {
			r.t.Errorf("after a recovery, %d of %d events of %s are stored", n, sizes[batch], batch)
		}
	}
}

// promised checks an acknowledgement: what it names is stored there, and on disk.
func (r *recovering) promised(ack log.Ack, evs ...events.Event) {
	if len(evs) == 0 || ack.Durability < log.Durable {
		return
	}
	places := r.d.ids()
	r.d.mu.Lock()
	synced := events.Offset(r.d.synced)
	r.d.mu.Unlock()
	if ack.Last > synced {
		r.t.Errorf("%v is acknowledged, and %v is on disk", ack.Last, synced)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range evs {
		at := places[e.ID]
		if len(at) != 1 || at[0] < ack.First || at[0] > ack.Last {
			r.t.Errorf("%s is acknowledged at %v to %v, and stored at %v", e.ID, ack.First, ack.Last, at)
			continue
		}
		r.acked[e.ID] = at[0]
	}
}

// insist repeats an append until it is acknowledged, as a producer does. If the disk is sick, it recovers.
func (r *recovering) insist(what string, do func() error) {
	var err error
	for begun := time.Now(); time.Since(begun) < testkit.Patience(time.Minute); {
		if err = do(); err == nil {
			return
		}
		if !errors.Is(err, log.ErrUnknown) && !errors.Is(err, log.ErrUnavailable) {
			break
		}
		r.d.mu.Lock()
		sick := r.d.sick
		r.d.mu.Unlock()
		if sick {
			r.recover(1)
		}
		time.Sleep(100 * time.Microsecond) // others may be recovering
	}
	r.t.Errorf("%s is never acknowledged: %v", what, err)
}

// append appends events to one subject until they are acknowledged.
func (r *recovering) append(sub events.Subject, expect log.Expect, evs ...events.Event) {
	r.insist(evs[0].ID, func() error {
		ack, err := r.l.Append(r.t.Context(), sub, expect, evs...)
		if err == nil {
			r.promised(ack, evs...)
		}
		return err
	})
}

func (r *recovering) appendAll(parts ...log.Part) {
	r.insist(parts[0].Events[0].ID, func() error {
		acks, err := r.l.AppendAll(r.t.Context(), parts...)
		for i, ack := range acks {
			if err == nil {
				r.promised(ack, parts[i].Events...)
			}
		}
		return err
	})
}

// last returns the offset of the last record of a subject, which then stays.
func (r *recovering) last(sub events.Subject) (at events.Offset) {
	r.insist("the last of "+sub.Name(), func() error {
		rec, err := r.l.Last(r.t.Context(), sub)
		if errors.Is(err, log.ErrNotFound) {
			err = nil
		} else if err == nil {
			r.promised(log.Ack{First: rec.Offset, Last: rec.Offset, Durability: log.Durable}, rec.Event)
		}
		at = rec.Offset
		return err
	})
	return at
}

// end checks that everything that was acknowledged or read is where it was, each event once, that reads show it, and
// that every subject takes appends.
func (r *recovering) end(subs ...events.Subject) {
	for i, sub := range subs {
		r.append(sub, log.Any, note(fmt.Sprint("end", i), "x"))
	}
	places := r.d.ids()
	for id, at := range r.acked {
		if !slices.Equal(places[id], []events.Offset{at}) {
			r.t.Errorf("%s was acknowledged at %v, and is at %v", id, at, places[id])
		}
	}
	read := make(map[string][]events.Offset)
	r.insist("a read", func() error { // it ends when the backend is replaced
		clear(read)
		for rec, err := range r.l.Read(r.t.Context(), events.Range{}) {
			if err != nil {
				return err
			}
			if rec.Source == "test://log" {
				read[rec.ID] = append(read[rec.ID], rec.Offset)
			}
		}
		return nil
	})
	if !maps.EqualFunc(read, places, slices.Equal) {
		r.t.Errorf("reads show %v, stored is %v", read, places)
	}
}

// A log whose last records were lost keeps every promise, whatever it was doing meanwhile.
func TestRecover(t *testing.T) {
	for name, share := range map[string]float64{"everything": 1, "a half": 0.5, "nothing": 0} {
		t.Run("net R1 between any two steps, "+name+" is lost", func(t *testing.T) {
			broken := false
			schedule.Each(t, func(t *testing.T, points *schedule.Points) {
				if broken {
					t.Skip("another run failed")
				}
				defer func() { broken = t.Failed() }()
				r := newRecovering(t, points.Reached)
				recoverAtOnce(r, points, share)
			})
		})
	}
	t.Run("net R1 a follower shows no record that was lost when it had just come", func(t *testing.T) {
		var act atomic.Pointer[func()]
		r := newRecovering(t, func(point string) {
			if do := act.Load(); do != nil && point == "after a new record" && act.CompareAndSwap(do, nil) {
				(*do)()
			}
		})
		a, b := lossySubjects[0], lossySubjects[1]
		r.append(a, log.Any, note("first", "x"))
		lose := func() {
			r.recover(1)
			r.append(b, log.Any, note("second", "x"))
		}
		act.Store(&lose)
		ctx, stop := context.WithTimeout(t.Context(), testkit.Patience(time.Minute))
		defer stop()
		var got []string
		for rec, err := range r.l.Follow(ctx, events.Range{Limit: 2}) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, rec.ID); len(got) == 1 {
				if _, err := r.l.AppendBuffered(ctx, a, log.Any, note("lost", "x")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("got %v, want first and second", got)
		}
	})
	t.Run("net R1 a recovery that cannot complete a batch fails, and the next one completes it", func(t *testing.T) {
		var act atomic.Pointer[func()]
		r := newRecovering(t, func(point string) {
			if do := act.Load(); do != nil && point == "after a publication" && act.CompareAndSwap(do, nil) {
				(*do)() // the record of the batch is stored, and none of its events
			}
		})
		r.append(lossySubjects[0], log.Any, note("first", "x"))
		recovers := func() {
			r.d.fills(true)
			if err := r.l.Recover(t.Context(), func() error { return nil }); !errors.Is(err, log.ErrFull) {
				t.Errorf("without room for the batch: got %v, want ErrFull", err)
			}
			r.d.fills(false)
			r.recover(0)
			r.halves(map[string]int{"batch1": 2})
		}
		act.Store(&recovers)
		r.appendAll(log.Part{Subject: lossySubjects[0], Events: []events.Event{note("batch1.1", "x")}}, log.Part{Subject: lossySubjects[1], Events: []events.Event{note("batch1.2", "x")}})
		r.end(lossySubjects...)
	})
	t.Run("net R1 random histories", func(t *testing.T) {
		for seed := range testkit.Times(120) {
			if t.Failed() {
				return
			}
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { recoverOften(t, rand.New(rand.NewPCG(uint64(seed), 1))) })
		}
	})
}

var lossySubjects = []events.Subject{events.Session("", "a"), events.Session("", "b"), events.Document("", "doc", "c")}

// recoverAtOnce appends and reads in every way. The log recovers at the pass of this run.
func recoverAtOnce(r *recovering, points *schedule.Points, share float64) {
	a, b, c := lossySubjects[0], lossySubjects[1], lossySubjects[2]
	sizes := map[string]int{"batch1": 4, "batch2": 3}
	r.append(a, log.Any, note("first", "x"))
	points.Do(func() {
		r.recover(share)
		r.halves(sizes)
	})
	written := func(id string) events.Event {
		return events.Event{ID: id, Source: "test://log", Type: events.TypeDocumentWritten, Data: []byte("x")}
	}
	if _, err := r.l.AppendBuffered(r.t.Context(), a, log.Any, note("buffered", "x")); err != nil {
		r.t.Error(err)
	}
	r.append(a, log.Any, note("named", "x"))
	at := r.last(a)
	r.appendAll(log.Part{Subject: a, Expect: log.At(at), Events: []events.Event{note("batch1.1", "x"), note("batch1.2", "x")}},
		log.Part{Subject: b, Events: []events.Event{note("batch1.3", "x")}}, log.Part{Subject: c, Expect: log.At(0), Events: []events.Event{written("batch1.4")}})
	r.append(b, log.Since(0, "com.example.other"), note("since", "x"))
	r.appendAll(log.Part{Subject: c, Events: []events.Event{written("batch2.1")}}, log.Part{Subject: b, Events: []events.Event{note("batch2.2", "x"), note("batch2.3", "x")}})
	series := []events.Event{note("series1", "x"), note("series2", "x")}
	r.insist("a series", func() error {
		ack, _, err := r.l.AppendSeries(r.t.Context(), b, log.Any, series...)
		if err == nil {
			r.promised(ack, series...)
		}
		return err
	})
	r.append(b, log.At(r.last(b)), note("at", "x"))
	r.append(a, log.Any, note("named", "x")) // again
	r.end(lossySubjects...)
}

// recoverOften has writers, readers and a follower, while the disk fails and the log recovers.
func recoverOften(t *testing.T, random *rand.Rand) {
	dice := func(n int) func() bool { // safe for concurrent use
		var mu sync.Mutex
		own := rand.New(rand.NewPCG(random.Uint64(), 2))
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return own.IntN(n) == 0
		}
	}
	sleeps := dice(4)
	r := newRecovering(t, func(string) {
		if sleeps() {
			time.Sleep(20 * time.Microsecond)
		}
	})
	subs := lossySubjects[:2]
	r.append(subs[0], log.Any, note("first", "x"))
	following, stop := context.WithCancel(t.Context())
	var writers, others sync.WaitGroup
	others.Go(func() {
		for rec, err := range r.l.Follow(following, events.Range{Subject: subs[0]}) {
			if err != nil {
				t.Errorf("follow: %v", err)
				return
			}
			r.promised(log.Ack{First: rec.Offset, Last: rec.Offset, Durability: log.Durable}, rec.Event)
		}
	})
	sizes := make(map[string]int)
	for w := range 3 {
		for i := range 10 {
			sizes[fmt.Sprintf("batch%d-%d", w, i)] = 2
		}
		buffered, all, reads, first := dice(4), dice(3), dice(4), dice(2)
		writers.Go(func() {
			for i := range 10 {
				sub, other, id := subs[0], subs[1], fmt.Sprintf("%d-%d", w, i)
				if first() {
					sub, other = other, sub
				}
				switch {
				case buffered():
					_, _ = r.l.AppendBuffered(t.Context(), sub, log.Any, note(id, "x")) // it may be lost
				case all():
					r.appendAll(log.Part{Subject: sub, Events: []events.Event{note("batch"+id+".1", "x")}}, log.Part{Subject: other, Events: []events.Event{note("batch"+id+".2", "x")}})
				case reads():
					r.last(sub)
				default:
					r.append(sub, log.Any, note(id, "x"))
				}
			}
		})
	}
	over := make(chan struct{})
	fails := dice(2)
	others.Go(func() {
		for n := range 6 { // more would keep batches from ever being whole
			select {
			case <-over:
				return
			case <-time.After(300 * time.Microsecond):
			}
			if fails() {
				r.d.fails()
			}
			r.recover(float64(n%3) / 2)
		}
	})
	writers.Wait()
	close(over)
	stop()
	others.Wait()
	r.halves(sizes)
	r.end(subs...)
}

package perstack

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// DeltaPolicy says what becomes of the pieces of a text that streams in. What begins and
// what completes a text is always kept, and so is the whole text with it.
type DeltaPolicy int

// The policies.
const (
	KeepDeltas   DeltaPolicy = iota // each piece is an event, as in the original
	SampleDeltas                    // those of 250 ms or 4 KiB become one event
	DropDeltas                      // none is kept: what was not completed leaves no text
)

// Bounds of what SampleDeltas holds back.
const (
	holdTime  = 250 * time.Millisecond
	holdBytes = 4 << 10
)

// deltas are the pieces of text that a handle holds back.
type deltas struct {
	storing sync.Mutex // held while pieces are stored, so that what comes behind them stays there

	mu   sync.Mutex            // guards what follows
	held map[string]*heldDelta // by run
	lost error                 // of what was stored behind the caller's back; the next call returns it
}

// heldDelta is a stretch of pieces of one text.
type heldDelta struct {
	first shape.Event
	text  strings.Builder
	timer *time.Timer
}

// hold keeps a piece of text back, and stores what is held when it is enough.
func (h *Handle) hold(ctx context.Context, e shape.Event) (log.Ack, error) {
	if h.options.Deltas == DropDeltas {
		return log.Ack{}, nil
	}
	d := &h.deltas
	if d.isOther(e) {
		if err := h.flushRun(ctx, e.Run); err != nil {
			return log.Ack{}, err
		}
	}
	d.mu.Lock()
	have := d.held[e.Run]
	if have == nil {
		have = h.begin(context.WithoutCancel(ctx), e)
	}
	have.text.WriteString(shape.TextOf(e.Raw, "delta"))
	full, lost := have.text.Len() >= holdBytes, d.lost
	d.lost = nil
	d.mu.Unlock()
	if full {
		ack, err := h.storeHeld(ctx, e.Run)
		return ack, errors.Join(lost, err)
	}
	return log.Ack{}, lost
}

// isOther reports whether pieces of another text are held back of a run.
func (d *deltas) isOther(e shape.Event) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	have := d.held[e.Run]
	return have != nil && (have.first.Type != e.Type || have.first.Step != e.Step)
}

// begin begins a stretch of pieces. Whoever streams may pause or be gone from here: what is
// held is stored all the same, in time. The caller holds deltas.mu.
func (h *Handle) begin(ctx context.Context, e shape.Event) *heldDelta {
	d := &h.deltas
	if d.held == nil {
		d.held = make(map[string]*heldDelta)
	}
	have := &heldDelta{first: e}
	have.timer = time.AfterFunc(holdTime, func() {
		d.storing.Lock()
		defer d.storing.Unlock() // and not before it is known whether it failed
		if _, err := h.takeHeld(ctx, e.Run); err != nil {
			d.mu.Lock()
			d.lost = errors.Join(d.lost, err)
			d.mu.Unlock()
		}
	})
	d.held[e.Run] = have
	return have
}

// flushRun stores what is held back of a run.
func (h *Handle) flushRun(ctx context.Context, run string) error {
	_, err := h.storeHeld(ctx, run)
	return err
}

func (h *Handle) storeHeld(ctx context.Context, run string) (log.Ack, error) {
	h.deltas.storing.Lock()
	defer h.deltas.storing.Unlock()
	return h.takeHeld(ctx, run)
}

// takeHeld is storeHeld. The caller holds deltas.storing.
func (h *Handle) takeHeld(ctx context.Context, run string) (log.Ack, error) {
	d := &h.deltas
	d.mu.Lock()
	have := d.held[run]
	delete(d.held, run)
	d.mu.Unlock()
	if have == nil {
		return log.Ack{}, nil
	}
	have.timer.Stop()
	raw, err := shape.WithDelta(have.first.Raw, have.text.String())
	if err != nil {
		return log.Ack{}, err
	}
	have.first.Raw = raw
	return h.recordOne(ctx, have.first)
}

// Flush stores what is held back of streamed text, also what is just being stored as its
// time came. A program calls it before it ends.
func (h *Handle) Flush(ctx context.Context) error {
	d := &h.deltas
	d.storing.Lock()
	defer d.storing.Unlock()
	d.mu.Lock()
	var runs []string
	for run := range d.held {
		runs = append(runs, run)
	}
	lost := d.lost
	d.lost = nil
	d.mu.Unlock()
	for _, run := range runs {
		_, err := h.takeHeld(ctx, run)
		lost = errors.Join(lost, err)
	}
	return lost
}

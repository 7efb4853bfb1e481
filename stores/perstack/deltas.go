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

// DeltaPolicy determines how pieces of a streamed text are stored. The events that begin and complete a text are always
// stored, and with the last one the whole text.
type DeltaPolicy int

// Policies for pieces of streamed text.
const (
	KeepDeltas   DeltaPolicy = iota // each piece is an event, as in the original
	SampleDeltas                    // the pieces of 250 ms or 4 KiB become one event
	DropDeltas                      // no piece is stored: a text that is not completed is lost
)

// Bounds of the pieces that SampleDeltas holds back.
const (
	holdTime  = 250 * time.Millisecond
	holdBytes = 4 << 10
)

// deltas are the pieces of text that a handle holds back.
type deltas struct {
	storing sync.Mutex // held while pieces are stored, so that later events stay behind them

	mu   sync.Mutex            // guards the fields below
	held map[string]*heldDelta // by run
	lost error                 // error of a background write; the next call returns it
}

// heldDelta is consecutive pieces of one text.
type heldDelta struct {
	first shape.Event
	text  strings.Builder
	timer *time.Timer
}

// hold holds a piece of text back, or stores the held pieces if they are enough.
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

// isOther reports whether a run has held pieces of another text.
func (d *deltas) isOther(e shape.Event) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	have := d.held[e.Run]
	return have != nil && (have.first.Type != e.Type || have.first.Step != e.Step)
}

// begin begins to hold pieces. A timer stores them even if the caller never calls again. The caller holds deltas.mu.
func (h *Handle) begin(ctx context.Context, e shape.Event) *heldDelta {
	d := &h.deltas
	if d.held == nil {
		d.held = make(map[string]*heldDelta)
	}
	have := &heldDelta{first: e}
	have.timer = time.AfterFunc(holdTime, func() {
		d.storing.Lock()
		defer d.storing.Unlock() // not before the result is known
		if _, err := h.takeHeld(ctx, e.Run); err != nil {
			d.mu.Lock()
			d.lost = errors.Join(d.lost, err)
			d.mu.Unlock()
		}
	})
	d.held[e.Run] = have
	return have
}

// flushRun stores the held pieces of a run.
func (h *Handle) flushRun(ctx context.Context, run string) error {
	_, err := h.storeHeld(ctx, run)
	return err
}

func (h *Handle) storeHeld(ctx context.Context, run string) (log.Ack, error) {
	h.deltas.storing.Lock()
	defer h.deltas.storing.Unlock()
	return h.takeHeld(ctx, run)
}

// takeHeld is storeHeld without the lock. The caller holds deltas.storing.
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

// Flush stores all held pieces of streamed text, and waits for those that a timer is storing. Call it before the
// program ends.
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

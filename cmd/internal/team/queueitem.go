package team

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/stores/tavern"
)

// held is an item that this process has claimed, in a store that may be reopened.
type held struct {
	w       *worker
	item    tavern.Item
	fence   events.Offset
	until   time.Time
	attempt int

	mu    sync.Mutex // guards the fields below
	st    *tally.Store
	claim *tavern.Claim // of st
}

// with calls f with the claim. The event that f appends is the same each time, so the call is repeated after an unknown
// outcome.
func (h *held) with(ctx context.Context, f func(*tally.Store, *tavern.Claim) error) error {
	return h.w.store.do(ctx, func(st *tally.Store) error {
		c, err := h.of(ctx, st)
		if err != nil {
			return err
		}
		return f(st, c)
	})
}

// of returns the claim for a store.
func (h *held) of(ctx context.Context, st *tally.Store) (*tavern.Claim, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.st == st {
		return h.claim, nil
	}
	c, err := tavern.QueueOf(st, h.w.queue).Resume(ctx, h.item.ID, h.fence)
	if err != nil && !(cli.Is[*tally.FencedError](err) && c != nil) { // with a FencedError the claim is lost, and its report says how
		return nil, err
	}
	h.st, h.claim = st, c
	return c, nil
}

// do runs the command for an item and reports the result.
func (w *worker) do(ctx context.Context, h *held) {
	row := worked{ID: h.item.ID, Attempt: h.attempt, Fence: h.fence}
	w.attempt(ctx, h, &row)
	if row.err == nil {
		row.err = w.say(row)
	}
	if row.err != nil {
		w.stop()
	}
	w.done <- row
}

// attempt runs the command and fills in the result.
func (w *worker) attempt(ctx context.Context, h *held, row *worked) {
	life, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	if err := h.renewed(life); !w.store.isStored(err) { // in an idle store the lease may have ended already
		if ctx.Err() == nil {
			w.fenced(row, "lost", err)
			return
		}
		last, cancel := lastWord(ctx)
		defer cancel()
		w.report(last, h, row, "released", func(c *tavern.Claim) error { return c.Release(last) })
		return
	}
	var renewing sync.WaitGroup
	renewing.Go(func() { h.keep(life, lost) })
	out := &bounded{most: maxResult}
	c := child{command: w.command, stdin: h.item.Body, stdout: out, stderr: w.app.Err, env: []variable{{"TALLY_QUEUE", w.queue}, {"TALLY_ITEM", h.item.ID},
		{"TALLY_ATTEMPT", strconv.Itoa(h.attempt)}, {"TALLY_FENCE", strconv.FormatUint(uint64(h.fence), 10)}}}
	e, err := c.run(life)
	gone := cli.Is[*tally.FencedError](context.Cause(life))
	lost(nil)
	renewing.Wait()
	last, cancel := lastWord(ctx)
	defer cancel()
	if unstarted, ok := errors.AsType[*unstartedError](err); ok {
		row.Error = unstarted.reason
		w.report(last, h, row, "failed", func(c *tavern.Claim) error { return c.Fail(last, row.Error, !unstarted.final) })
		return
	}
	if err != nil {
		row.err = errors.Join(err, h.with(last, func(_ *tally.Store, c *tavern.Claim) error { return c.Release(last) }))
		return
	}
	row.Exit, row.Signal, row.Seconds = e.exit, e.signal, e.took.Seconds()
	switch {
	case e.stopped && gone:
		w.fenced(row, "lost", context.Cause(life))
	case e.stopped:
		w.report(last, h, row, "released", func(c *tavern.Claim) error { return c.Release(last) })
	case e.ok():
		w.report(last, h, row, "completed", func(c *tavern.Claim) error { return c.Finish(last, w.result(out, row.ID)) })
	default:
		row.Error = e.reason()
		w.report(last, h, row, "failed", func(c *tavern.Claim) error { return c.Fail(last, row.Error, true) })
	}
}

// report reports the end of an item.
func (w *worker) report(ctx context.Context, h *held, row *worked, outcome string, end func(*tavern.Claim) error) {
	row.Outcome = outcome
	err := h.with(ctx, func(_ *tally.Store, c *tavern.Claim) error { return end(c) })
	if !w.store.isStored(err) {
		w.fenced(row, "stale", err)
	}
}

// fenced records an error. A FencedError, after which another worker has the item, is the result of the attempt. Any
// other error ends queue work.
func (w *worker) fenced(row *worked, outcome string, err error) {
	fenced, ok := errors.AsType[*tally.FencedError](err)
	if !ok {
		row.err = err
		return
	}
	row.Outcome, row.Error, row.Stale = outcome, fenced.Error(), fenced.Stale
}

// maxResult is the maximum size of a result.
const maxResult = 1 << 20

// result returns the output of a command without its last line end.
func (w *worker) result(out *bounded, id string) []byte {
	if out.size > maxResult {
		fmt.Fprintf(w.app.Err, "%s printed %s: the result is the first %s\n", plain.Printable(cli.ID(id)), plain.Bytes(out.size), plain.Bytes(maxResult))
		for n := 1; n < utf8.UTFMax && !utf8.Valid(out.buf); n++ { // a character that the limit cut
			out.buf = out.buf[:len(out.buf)-1]
		}
	}
	return bytes.TrimSuffix(out.buf, []byte("\n"))
}

// left returns the remaining time of the lease, by the log's time.
func (h *held) left(ctx context.Context) (d time.Duration, err error) {
	err = h.w.store.do(ctx, func(st *tally.Store) error {
		now, err := st.LogTime(ctx)
		d = h.until.Sub(now)
		return err
	})
	return d, err
}

// renewed renews the claim if its lease has ended.
func (h *held) renewed(ctx context.Context) error {
	d, err := h.left(ctx)
	if err != nil || d > 0 {
		return err
	}
	return h.renew(ctx)
}

func (h *held) renew(ctx context.Context) error {
	return h.with(ctx, func(_ *tally.Store, c *tavern.Claim) error {
		until, err := c.Renew(ctx)
		if !h.w.store.isStored(err) {
			return err
		}
		h.until = until
		return nil
	})
}

// keep renews the claim after half of each lease, until ctx is done. If another worker has the item, it calls lost.
func (h *held) keep(ctx context.Context, lost context.CancelCauseFunc) {
	for {
		d, err := h.left(ctx)
		if err == nil && d > 0 && !pause(ctx, max(d/2, minRenewal)) {
			return
		}
		if err == nil {
			err = h.renew(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case cli.Is[*tally.FencedError](err):
			lost(err)
			return
		case err != nil:
			fmt.Fprintln(h.w.app.Err, plain.Printable(fmt.Sprintf("%s: not renewed: %v", cli.ID(h.item.ID), err)))
			if !pause(ctx, time.Second) {
				return
			}
		}
	}
}

// minRenewal is the minimum time between renewals.
const minRenewal = 10 * time.Millisecond

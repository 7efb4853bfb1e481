package ingest

import (
	"context"
	"sync"
)

// Bounds of what is done at once: sessions, and jobs that wait for their turn.
const (
	maxWorkers = 32
	maxQueued  = 128
)

// job is something to be done for a session.
type job func(ctx context.Context) error

// workers does jobs: those of one session in their order, those of several at once. The log
// makes one wait for the disk of the appends that come together.
type workers struct {
	ctx  context.Context
	fail func(error) // is told of the first error, and ends ctx

	mu      sync.Mutex
	changed sync.Cond
	queues  map[string][]job // by session; there while one works at it or it is ready
	ready   []string         // sessions that nobody works at
	workers int
	queued  int
	busy    bool // something was done since somebody asked
}

func newWorkers(ctx context.Context, fail func(error)) *workers {
	c := &workers{ctx: ctx, fail: fail, queues: make(map[string][]job)}
	c.changed.L = &c.mu
	return c
}

// put has a job done. If too many wait, it waits with them.
func (c *workers) put(session string, do job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.queued >= maxQueued {
		c.changed.Wait()
	}
	c.add(session, do, false)
}

// urge has a job done before those of other sessions, and does not wait: a job may ask for
// others.
func (c *workers) urge(session string, do job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(session, do, true)
}

func (c *workers) add(session string, do job, isUrgent bool) {
	list, known := c.queues[session]
	c.queues[session] = append(list, do)
	c.queued++
	c.busy = true
	if known {
		return
	}
	if c.ready = append(c.ready, session); isUrgent {
		copy(c.ready[1:], c.ready)
		c.ready[0] = session
	}
	if c.workers < maxWorkers {
		c.workers++
		go c.work()
	}
}

// work does a job of each session that is ready in turn, until there is none.
func (c *workers) work() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.ready) > 0 {
		session := c.ready[0]
		c.ready = c.ready[1:]
		do := c.queues[session][0]
		c.mu.Unlock()
		c.do(do)
		c.mu.Lock()
		c.queued--
		if list := c.queues[session][1:]; len(list) > 0 {
			c.queues[session] = list
			c.ready = append(c.ready, session)
		} else {
			delete(c.queues, session)
		}
		c.changed.Broadcast()
	}
	c.workers--
	c.changed.Broadcast()
}

func (c *workers) do(do job) {
	if c.ctx.Err() != nil {
		return
	}
	if err := do(c.ctx); err != nil && c.ctx.Err() == nil {
		c.fail(err)
	}
}

// rest waits until all is done, and reports whether anything was since it was asked last.
func (c *workers) rest() (wasBusy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.workers > 0 || c.queued > 0 {
		c.changed.Wait()
	}
	wasBusy, c.busy = c.busy, false
	return wasBusy
}

// isBusy reports whether something is to be done.
func (c *workers) isBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queued > 0
}

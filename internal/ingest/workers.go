package ingest

import (
	"context"
	"sync"
)

// Bounds of concurrency: sessions at once, and queued jobs.
const (
	maxWorkers = 32
	maxQueued  = 128
)

// job is work for a session.
type job func(ctx context.Context) error

// workers runs jobs: those of one session in order, those of several sessions concurrently. The log combines concurrent
// appends into one wait for the disk.
type workers struct {
	ctx  context.Context
	fail func(error) // called with the first error; ends ctx

	mu      sync.Mutex
	changed sync.Cond
	queues  map[string][]job // by session; present while a worker runs a job of it, or it is ready
	ready   []string         // sessions without a worker
	workers int
	queued  int
	busy    bool // a job ran since the last call of rest
}

func newWorkers(ctx context.Context, fail func(error)) *workers {
	c := &workers{ctx: ctx, fail: fail, queues: make(map[string][]job)}
	c.changed.L = &c.mu
	return c
}

// put queues a job. If too many jobs are queued, it waits.
func (c *workers) put(session string, do job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.queued >= maxQueued {
		c.changed.Wait()
	}
	c.add(session, do, false)
}

// urge queues a job before those of other sessions, and does not wait, because jobs may call it.
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

// work runs a job of each ready session in turn, until there are none.
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

// rest waits until all jobs are done, and reports whether any ran since the last call.
func (c *workers) rest() (wasBusy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.workers > 0 || c.queued > 0 {
		c.changed.Wait()
	}
	wasBusy, c.busy = c.busy, false
	return wasBusy
}

// isBusy reports whether jobs are queued.
func (c *workers) isBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queued > 0
}

package tree

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/tallylog/tally/internal/layouts"
)

const (
	auditEvery = 10 * time.Minute // interval between examinations of all files without a notification
	pollEvery  = 2 * time.Second  // interval if the storage has no notifications
	pollRate   = 1000             // files a second that a poll examines
)

// Run follows the files until ctx is done, and imports edits. While the log cannot be reached, Run waits for it. The error
// says why the tree cannot be loaded.
func (t *Tree) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	t.mu.Lock()
	err := t.load(ctx) // not Begin: the view may have applied records already
	t.mu.Unlock()
	if err != nil && passing(ctx, err) == nil { // Tick repeats an interrupted start
		return err
	}
	watching, end := t.watch(ctx)
	defer func() { end() }()
	polling := false
	for ctx.Err() == nil {
		next := t.Tick(ctx, t.c.Now())
		if t.isToRewatch() {
			end()
			watching, end = t.watch(ctx)
			polling = false
			continue
		}
		if polling {
			next = sooner(next, t.c.Now().Add(t.pollAfter()))
		}
		timer := time.NewTimer(max(next.Sub(t.c.Now()), time.Millisecond))
		select {
		case <-t.wake:
		case <-timer.C:
			if polling {
				t.Changed("")
			}
		case err := <-watching:
			if ctx.Err() == nil {
				polling = true
				t.say("polling: " + err.Error())
				t.Changed("")
			}
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// watch starts the storage's notifications, and returns when they are active. A failure is sent later. end stops them,
// and returns when they have stopped.
func (t *Tree) watch(ctx context.Context) (failed chan error, end func()) {
	ctx, end = context.WithCancel(ctx)
	failed = make(chan error, 1)
	w, ok := t.c.Storage.(layouts.Watcher)
	if !ok || t.c.Way == Out {
		failed <- errors.New("the storage does not report changes")
		return failed, end
	}
	ready, ended, stop := make(chan struct{}), make(chan struct{}), end
	go func() {
		defer close(ended)
		failed <- w.Watch(ctx, func() { close(ready) }, t.Changed)
	}()
	end = func() {
		stop()
		<-ended // the storage may be closed afterwards
	}
	t.say("watching")
	select {
	case <-ready:
	case err := <-failed:
		failed <- err
	case <-ctx.Done():
	}
	return failed, end
}

func (t *Tree) isToRewatch() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := t.rewatch
	t.rewatch = false
	return is
}

// pollAfter returns the poll interval of a tree without notifications.
func (t *Tree) pollAfter() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(pollEvery, time.Duration(len(t.files))*time.Second/pollRate)
}

func (t *Tree) say(how string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watched = how
}

// Tick does the work that is due at a time: it imports settled edits, retries failed writes, and removes files that
// were kept long enough. It returns when it should be called again.
func (t *Tree) Tick(ctx context.Context, now time.Time) (next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(ctx); err != nil {
		t.c.Logger.Warn("the tree cannot be read", "tree", t.c.Name, "err", err)
		return now.Add(maxRetry)
	}
	if t.isAway() {
		return now.Add(pollEvery)
	}
	if t.c.Way != Out && (!t.audited || !t.audit.After(now)) {
		t.audited, t.audit = true, now.Add(auditEvery)
		said := maps.Clone(t.noticed)
		if err := t.leftovers(ctx); err != nil {
			t.c.Logger.Warn("leftover files of the tree cannot be read", "tree", t.c.Name, "err", err)
		}
		t.scan(ctx, "")
		for p, n := range t.noticed {
			n.found = n.found || !t.met && said[p] == nil
		}
	}
	next = sooner(t.audit, now.Add(auditEvery))
	if t.c.Way != Out && t.knowsLog() {
		next = sooner(next, t.payOwed(ctx, now))
		next = sooner(next, t.settled(ctx, now))
		if t.asking != nil && len(t.edits)+t.pending() == 0 {
			t.asking = nil // all files have their former content
		}
		if t.asking == nil && !t.judge(ctx, now) && len(t.edits) > 0 {
			next = sooner(next, t.importSettled(ctx, now, maps.Clone(t.edits)))
		}
		next = sooner(next, t.holdTexts(ctx, now)) // edits that were not imported
	}
	if ctx.Err() != nil {
		t.audited = false // an interrupted look at the files does not count
	}
	if !t.met && t.audited && t.pending() == 0 && len(t.edits) == 0 {
		t.met, t.changed.met = true, true
	}
	if t.c.Way == In {
		t.again = time.Time{} // this tree writes nothing
	}
	if t.asking == nil && !t.again.IsZero() && !t.again.After(now) {
		t.again = time.Time{}
		if head, err := t.c.Head(ctx); err == nil {
			err = t.mend(ctx, head)
			if err != nil {
				t.c.Logger.Warn("files of the tree cannot be written", "tree", t.c.Name, "err", err)
			}
		}
		if t.again.IsZero() {
			t.wait = 0
		}
	}
	if !t.again.IsZero() {
		next = sooner(next, t.again)
	}
	t.looked = t.looked || t.c.Way == Out && ctx.Err() == nil || t.audited && t.pending() == 0
	t.drop(ctx, now)
	for _, d := range t.out {
		next = sooner(next, d.due)
	}
	if err := t.save(ctx); err != nil {
		t.c.Logger.Warn("the manifest of the tree cannot be written", "tree", t.c.Name, "err", err)
	}
	for _, n := range t.noticed {
		if t.knowsLog() {
			next = sooner(next, n.last.Add(n.settle))
		}
	}
	return next
}

// knowsLog reports whether the files were updated to the log's end at the start of the tree. Before that, a tree
// without a manifest cannot distinguish its own files from others.
func (t *Tree) knowsLog() bool {
	return t.met || t.c.Way == In || t.cursor.Offset >= t.start
}

// importSettled imports edits. Failures are retried.
func (t *Tree) importSettled(ctx context.Context, now time.Time, list map[string]*edit) (next time.Time) {
	err := t.importEdits(ctx, list)
	for p, e := range list {
		if _, left := t.edits[p]; !left {
			t.release(ctx, e)
			t.recent = append(t.recent, recently{p, now})
			continue
		}
		delete(t.edits, p) // it is examined again, because the log may change first
		if t.noticed[p] == nil {
			t.noticed[p] = &notice{last: now, settle: settleGone, found: e.found}
		}
	}
	if err != nil && ctx.Err() == nil {
		t.c.Logger.Warn("edits cannot be stored, will retry", "tree", t.c.Name, "err", err)
		return now.Add(time.Second)
	}
	return time.Time{}
}

// Pull examines every file, and imports all differences.
func (t *Tree) Pull(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(ctx); err != nil {
		return err
	}
	if t.isAway() {
		return t.asking
	}
	t.rescan(ctx)
	if !t.knowsLog() {
		return errors.New("tree " + t.c.Name + ": not caught up with the log yet")
	}
	if n, lost, _ := t.count(ctx, t.c.Now()); t.asking == nil && t.met && len(t.edits) > 0 && t.isTooMuch(ctx, n, lost) {
		t.ask(t.isMany(n))
	}
	if t.asking != nil {
		t.holdTexts(ctx, t.c.Now())
		return t.asking
	}
	return t.importAll(ctx)
}

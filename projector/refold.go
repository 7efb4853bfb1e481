package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
)

// Refold folds subjects again from their first records, because the log has changed: records were erased. If a subject
// cannot be folded any more, its rows are removed, and it is quarantined. The caller names the forks of the subjects too:
// the order is that of the first records, so that parents come before their forks. During Run, the goroutine of Run does
// the work. A view that cannot fold single subjects starts at zero.
func (r *Runner) Refold(ctx context.Context, subjects []events.Subject) error {
	defer r.await()() // the view does not rest meanwhile
	done := make(chan error, 1)
	if !r.ask(func(life context.Context) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(life, stop)()
		done <- r.refold(ctx, subjects)
	}) {
		r.withDefaults()
		return r.refold(ctx, subjects)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("projector: view %s: %w", r.View.Name(), context.Cause(ctx))
	}
}

// starts notes that Run is running, until the returned function is called. That function calls the rest of asked.
func (r *Runner) starts() (ends func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = true
	return func() {
		r.mu.Lock()
		asked := r.asked
		r.runs, r.asked = false, nil
		r.mu.Unlock()
		over, stop := context.WithCancel(context.Background())
		stop()
		for _, do := range asked {
			do(over)
		}
	}
}

// ask makes Run call do between two batches. It returns false if Run is not running. life ends when Run has to stop.
func (r *Runner) ask(do func(life context.Context)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs {
		r.asked = append(r.asked, do)
		if r.interrupt != nil {
			r.interrupt()
		}
	}
	return r.runs
}

// followUntilAsked follows the log until it fails or is asked for something else, and does that.
func (r *Runner) followUntilAsked(ctx context.Context) (isAsked bool, err error) {
	following, stop := context.WithCancel(ctx)
	defer stop()
	r.mu.Lock()
	r.interrupt = stop
	isAsked = len(r.asked) > 0
	r.mu.Unlock()
	if !isAsked {
		err = r.follow(following)
	}
	r.mu.Lock()
	asked := r.asked
	r.asked, r.interrupt = nil, nil
	r.mu.Unlock()
	for _, do := range asked {
		do(ctx)
	}
	return len(asked) > 0, err
}

// maxRefolds bounds the attempts to fold a subject while other processes write the view.
const maxRefolds = 1000

func (r *Runner) refold(ctx context.Context, subjects []events.Subject) error {
	list, err := r.byFirst(ctx, subjects)
	if err != nil {
		return err
	}
	for _, sub := range list {
		err := r.refoldOne(ctx, sub)
		for n := 1; errors.Is(err, ErrMoved) && n < maxRefolds; n++ {
			err = r.refoldOne(ctx, sub)
		}
		if err != nil {
			return fmt.Errorf("projector: view %s: fold %s again: %w", r.View.Name(), sub.Name(), err)
		}
	}
	return nil
}

// byFirst returns the subjects, once each, in the order of their first records.
func (r *Runner) byFirst(ctx context.Context, subjects []events.Subject) (list []events.Subject, err error) {
	l := &Loader{Source: r.Log, MaxValue: r.MaxValue}
	firsts := make(map[events.Subject]events.Offset)
	for _, sub := range subjects {
		if _, known := firsts[sub]; known {
			continue
		}
		if firsts[sub], err = l.First(ctx, sub); err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		list = append(list, sub)
	}
	slices.SortStableFunc(list, func(a, b events.Subject) int { return cmp.Compare(firsts[a], firsts[b]) })
	return list, nil
}

// refoldOne folds a subject again. If that fails, nothing of it remains in the view: its rows may have erased content.
func (r *Runner) refoldOne(ctx context.Context, sub events.Subject) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	at, err := r.retry(ctx, sub)
	fold, failed := errors.AsType[*FoldError](err)
	if !failed {
		return err
	}
	r.Logger.Warn("subject is quarantined", "view", r.View.Name(), "subject", sub, "offset", uint64(at), "reason", fold.Error())
	if _, is := r.View.(setter); is {
		return nil // the commit has set the subject aside, without the rows of before
	}
	c, _, err := r.View.Begin(ctx)
	if err != nil {
		return err
	}
	r.View.Quarantine(Quarantine{Subject: sub, Offset: at, Reason: fold.Error()})
	if err := r.View.Forget(ctx, sub); err != nil { // after Quarantine, which drops changes
		return err
	}
	return r.View.Commit(ctx, c)
}

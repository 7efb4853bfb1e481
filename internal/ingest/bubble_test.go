package ingest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// inBubble plays a law with drawn programs on a fake clock, without a watch of the system's events.
func inBubble(t *testing.T, law func(t *rapid.T, dir string)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) { law(rt, dir) }) // a bubble has no Deadline
	})
}

// following runs an Ingester that follows the rig's files, and those of more sources, until stop is called, which
// returns the error of Run.
func (r *rig) following(l *refusing, more ...Source) (in *Ingester, stop func() error) {
	r.t.Helper()
	o := r.options(l)
	o.Sources = append(o.Sources, more...)
	o.Once, o.Quiet = false, time.Minute
	o.Tail.MaxWatches, o.Tail.Grace = -1, 2*time.Second
	in, err := New(o)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	l.heard = in.Blocked
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	return in, sync.OnceValue(func() error {
		cancel()
		err := <-ended
		if err == context.Canceled {
			err = nil
		}
		return errors.Join(err, in.Close())
	})
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

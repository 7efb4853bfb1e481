package tallydir

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// Calls above the memory limit wait until memory is released or their context ends.
func TestFoldersInMemoryAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits()
		var releases []func()
		for range 3 {
			release, err := l.hold(t.Context(), streamBeyond-1)
			if err != nil {
				t.Fatal(err)
			}
			releases = append(releases, release)
		}
		for range 8 {
			release, err := l.hold(t.Context(), heldStep)
			if err != nil {
				t.Fatal(err)
			}
			releases = append(releases, release)
		}
		ctx, cancel := context.WithCancel(t.Context())
		refused := make(chan error)
		go func() {
			_, err := l.hold(ctx, 100*streamBeyond)
			refused <- err
		}()
		synctest.Wait()
		select {
		case <-refused:
			t.Fatal("a call above the limit returned before its context ended")
		default:
		}
		cancel()
		if err := <-refused; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		entered := make(chan func())
		go func() {
			release, err := l.hold(t.Context(), 1)
			if err != nil {
				t.Error(err)
			}
			entered <- release
		}()
		synctest.Wait()
		select {
		case <-entered:
			t.Fatal("a call was admitted above the limit")
		default:
		}
		releases[0]()
		(<-entered)()
		for _, release := range releases[1:] {
			release()
		}
		if len(l.held) > 0 {
			t.Errorf("%d steps of memory were not released", len(l.held))
		}
	})
}

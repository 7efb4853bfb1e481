// Package schedule stops the code under test between two of its steps, and lets a test do there what the world may do
// meanwhile: append, write a file, fail a call, end a context, kill.
//
// The code under test calls a hook at named points. The hook does nothing in the product. In a test it is
// [Points.Reached]. [Each] repeats a test once for each pass of a point.
package schedule

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// Pass is the n-th time, from 1, that the code under test reaches a point.
type Pass struct {
	Point string
	N     int
}

// String returns the pass as a name of a subtest: "before append 2".
func (p Pass) String() string { return fmt.Sprint(p.Point, " ", p.N) }

// Points records the passes of one run, and calls the test's act at one of them. It is safe for concurrent use.
type Points struct {
	mu     sync.Mutex
	at     Pass
	act    func()
	acted  bool
	passes []Pass
	counts map[string]int
}

// Do sets what happens at the pass of this run. The passes before the call do not count. In the run without a pass,
// act is never called.
func (p *Points) Do(act func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.act, p.passes, p.counts = act, nil, make(map[string]int)
}

// Reached is the hook. At the pass of this run it calls the act, on the goroutine of the code under test and without a
// lock: what the act itself passes is recorded and starts nothing.
func (p *Points) Reached(point string) {
	p.mu.Lock()
	if p.act == nil {
		p.mu.Unlock()
		return
	}
	p.counts[point]++
	pass := Pass{point, p.counts[point]}
	p.passes = append(p.passes, pass)
	due := !p.acted && pass == p.at
	p.acted = p.acted || due
	act := p.act
	p.mu.Unlock()
	if due {
		act()
	}
}

// Acted reports whether the act was called. It is false in the run without a pass.
func (p *Points) Acted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acted
}

// Passes returns the passes since Do, in order.
func (p *Points) Passes() []Pass {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.passes)
}

// Each runs play once without an act, and then once for each pass that the first run had. play makes what it needs,
// calls Do, runs the code under test, and checks the result. A run in which the act was not called fails, and so does a
// first run that reaches no point.
func Each(t *testing.T, play func(t *testing.T, points *Points)) {
	t.Helper()
	var first Points
	t.Run("undisturbed", func(t *testing.T) { play(t, &first) })
	passes := first.Passes()
	if len(passes) == 0 && !t.Failed() {
		t.Fatal("the code under test reaches no point")
	}
	for _, pass := range passes {
		t.Run(pass.String(), func(t *testing.T) {
			points := &Points{at: pass}
			play(t, points)
			if !points.Acted() {
				t.Errorf("the run did not reach the point; it passed %v", points.Passes())
			}
		})
	}
}

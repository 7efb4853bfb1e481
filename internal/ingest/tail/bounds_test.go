package tail

import (
	"os"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// pass advances the time in steps of a second, and receives the deliveries after each.
func (r *rig) pass(d time.Duration) {
	for ; d > 0; d -= time.Second {
		r.now = r.now.Add(time.Second)
		r.drain()
	}
}

// Each case does something, and reports whether the bound is over when the given time has passed since.
func TestTimeBounds(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	for name, c := range map[string]struct {
		bound time.Duration
		isIn  bool // the bound itself is a part of the time before
		over  func(r *rig, after time.Duration) bool
	}{
		"content without a line feed is delivered": {30 * time.Second, false, func(r *rig, after time.Duration) bool {
			r.write("a.jsonl", "{}")
			r.drain()
			r.pass(after)
			return r.docs["a"] != nil && string(r.docs["a"].content) == "{}"
		}},
		"a missing file is gone": {20 * time.Second, false, func(r *rig, after time.Duration) bool {
			r.write("a.jsonl", "{}\n")
			r.pass(5 * time.Second)
			must(r.t, os.Remove(r.path("a.jsonl")))
			r.pass(time.Second) // and it is noticed
			r.pass(after)
			return r.docs["a"].gone
		}},
		"the state forgets a missing file": {remembered, true, func(r *rig, after time.Duration) bool {
			r.write("a.jsonl", "{}\n")
			r.pass(5 * time.Second)
			must(r.t, os.Remove(r.path("a.jsonl")))
			r.pass(time.Second)
			missing := r.now
			r.pass(time.Minute)
			r.now = missing.Add(after)
			r.tail.journal.lines = 1 << 20 // it is rewritten
			must(r.t, r.tail.write(nil))
			known, err := ReadState(r.state)
			must(r.t, err)
			_, is := known["r"]["a.jsonl"]
			return !is
		}},
		"a file is live no more": {10 * time.Minute, false, func(r *rig, after time.Duration) bool {
			r.write("a.jsonl", "{}\n")
			r.drain()
			r.now = r.now.Add(after)
			return r.tail.Status().Live == 0
		}},
		"a change with the time of the one before is noticed": {settle, false, func(r *rig, after time.Duration) bool {
			r.write("a.jsonl", "{1}\n")
			info, err := os.Stat(r.path("a.jsonl"))
			must(r.t, err)
			r.drain()
			r.write("a.jsonl", "{2}\n")
			must(r.t, os.Chtimes(r.path("a.jsonl"), info.ModTime(), info.ModTime()))
			r.pass(after)
			return string(r.docs["a"].content) == "{2}\n"
		}},
	} {
		t.Run("net G5 "+name, func(t *testing.T) {
			for _, early := range []time.Duration{time.Second, 0, -time.Second} {
				r := newRig(t, func(o *Options) { o.Grace = 20 * time.Second })
				r.now = r.now.Truncate(time.Second) // as the state tells times
				if is, want := c.over(r, c.bound-early), early < 0 || early == 0 && !c.isIn; is != want {
					t.Errorf("%v before the bound of %v, the time is over: %v, want %v", early, c.bound, is, want)
				}
				r.close()
			}
		})
	}
}

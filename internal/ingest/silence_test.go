package ingest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
)

// Silence is delivered at exactly the end of its time.
func TestSilenceOnTime(t *testing.T) {
	t.Run("net G4 a file is silent from exactly the end of the time on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, t.TempDir(), ofClaude)
			full := r.open()
			defer full.Close()
			_, stop := r.following(&refusing{Log: full})
			r.grow("-p/s.jsonl", promptsIn("/pier", 0, 1)+answer)
			time.Sleep(10 * time.Minute)
			must(t, stop())
			var last events.Record
			quiet := 0
			for _, rec := range r.records() {
				if strings.Contains(rec.ID, quietly) {
					if quiet++; !rec.Recorded.Equal(last.Recorded.Add(time.Minute)) {
						t.Errorf("the silence was delivered %v after the last line", rec.Recorded.Sub(last.Recorded))
					}
				} else {
					last = rec
				}
			}
			if quiet == 0 {
				t.Error("no silence was delivered")
			}
		})
	})
}

// Every batch of a file is acknowledged in the end, also one that was held when the next came.
func TestHeldBatches(t *testing.T) {
	t.Run("net G4 nothing is unacknowledged when all files are silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, t.TempDir(), ofClaude)
			full := r.open()
			defer full.Close()
			in, stop := r.following(&refusing{Log: full})
			for n := range 4 {
				r.grow("-p/s.jsonl", promptsIn("/pier", n, 1)+answer)
				time.Sleep(10 * time.Second)
			}
			time.Sleep(10 * time.Minute)
			if lag := in.tailer.Status().Lag; lag != 0 || in.status.held != 0 {
				t.Errorf("%d bytes are not acknowledged, and %d count as held, want none", lag, in.status.held)
			}
			must(t, stop())
		})
	})
}

// Several events follow from one silence.
func TestSilenceCutShort(t *testing.T) {
	t.Run("net G4 all that follows from a silence is there after a crash at any append and without the state", func(t *testing.T) {
		dir := t.TempDir()
		for stored := range 10 {
			r := newRig(t, dir, ofClaude)
			r.write("-p/s.jsonl", promptsIn("/pier", 0, 1)+answer)
			r.stopped(stored, false, 2)
			r.run()
			r.check(dir)
		}
	})
}

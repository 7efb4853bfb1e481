package log

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// No wait ends before its time, and none ends much later, in whatever order waits begin.
func TestWaitsThatShareTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const d = 8 * time.Second
		random, began := rand.New(rand.NewPCG(9, 9)), time.Now()
		var l limit
		waits := make(map[time.Duration]<-chan struct{})
		for at := time.Duration(0); at < 10*d; at += time.Duration(random.Int64N(int64(d / 4))) {
			time.Sleep(at - time.Since(began))
			waits[at] = l.after(d)
			synctest.Wait()
			for begin, over := range waits {
				isOver := false
				select {
				case <-over:
					isOver = true
				default:
				}
				if took := at - begin; isOver && took < d || !isOver && took > d+d/8 {
					t.Fatalf("%v after its beginning, a wait of %v is over: %v", took, d, isOver)
				}
			}
		}
	})
}

package quota

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// The bytes of a write without an answer stay reserved for exactly as long as it may reach the log.
func TestPatience(t *testing.T) {
	for _, early := range []time.Duration{time.Second, 0, -time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l, m := metered(t, memlog.New(memlog.Config{}), "", admits)
			limit(t, m, "store", 100)
			admit := func(id string) (func([]log.Ack, error), error) {
				return m.Admit(t.Context(), []log.Part{{Subject: doc(id), Events: []events.Event{withSubject(doc(id), written("ann", 60))}}})
			}
			settle, err := admit("a")
			if err != nil {
				t.Fatal(err)
			}
			settle(nil, log.ErrUnknown)
			time.Sleep(patience - early)
			if _, err := admit("b"); errors.Is(err, log.ErrQuota) != (early >= 0) {
				t.Errorf("%v before the end of the time, another write: %v", early, err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

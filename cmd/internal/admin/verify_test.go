package admin

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
)

// ends is a log whose end becomes durable after a while, or never.
type ends struct {
	head, durable events.Offset
	at            time.Time
}

func (e ends) Head(context.Context) (events.Offset, error) { return e.head, nil }

func (e ends) Durable(context.Context) (events.Offset, error) {
	if time.Now().Before(e.at) {
		return e.durable, nil
	}
	return e.head, nil
}

// Records that never become durable are reported. Records that need a moment are not.
func TestUnsettled(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		want  string
	}{
		"at once": {0, ""},
		"soon":    {time.Second, ""},
		"never":   {time.Hour, "it ends at @9, but is durable only up to @3"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said, err := unsettled(t.Context(), ends{9, 3, time.Now().Add(c.after)}, settling)
				if err != nil || said != c.want {
					t.Errorf("got %q, %v", said, err)
				}
			})
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := unsettled(ctx, ends{9, 3, time.Now().Add(time.Hour)}, settling); err == nil || !strings.Contains(err.Error(), "cancel") {
		t.Errorf("a cancelled context: got %v", err)
	}
}

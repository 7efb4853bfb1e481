package embedded_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// If the server stops its streams, as it does after some errors of the system, the owner opens them again without a
// restart of the process, and no record is lost.
func TestServerThatGivesUpItsStreams(t *testing.T) {
	t.Run("B-03 the server gives up its streams", func(t *testing.T) {
		s := mustStart(t, embedded.ServerOptions{Dir: t.TempDir()})
		a, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: s.Dir()})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		sub := events.Session("", "s")
		mustAppend(t, s.Log(), sub, turn("a", "x"))
		for _, id := range []string{"b", "c"} {
			if err := embedded.NATS(s).ShutdownJetStream(); err != nil {
				t.Fatal(err)
			}
			for n, l := range []*log.Log{a.Log(), s.Log()} {
				eventually(t, func() error {
					_, err := l.Append(t.Context(), sub, log.Any, turn(id+string(rune('0'+n)), "y"))
					if err != nil && !errors.Is(err, log.ErrUnavailable) && !errors.Is(err, log.ErrUnknown) {
						t.Fatal(err)
					}
					return err
				})
			}
		}
		for _, l := range []*log.Log{a.Log(), s.Log()} {
			if ids := strings.Join(mustRead(t, l, events.Range{}), " "); ids != "a b0 b1 c0 c1" {
				t.Errorf("got the log %s", ids)
			}
		}
		mustClose(t, s)
		mustStart(t, embedded.ServerOptions{Dir: s.Dir()})
	})
}

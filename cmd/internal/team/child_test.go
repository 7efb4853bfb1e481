package team

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
)

// The values of a message or item in an environment are bounded. A child that cannot be started for one of them is told
// apart from a command that cannot be started at all.
func TestChildStart(t *testing.T) {
	c := child{command: []string{os.Args[0], "-test.run=^$"}, stdout: io.Discard, stderr: io.Discard}
	t.Run("B-07 every variable", func(t *testing.T) {
		for value, fits := range map[string]bool{
			strings.Repeat("x", events.MaxIDLen): true, strings.Repeat("\x00", events.MaxIDLen): true, strings.Repeat("\xff", events.MaxIDLen): true,
			strings.Repeat("x", maxVariable): true, strings.Repeat("x", maxVariable+1): false, strings.Repeat("\x00", events.MaxIDLen+1): false,
			strings.Repeat("x", 200_000): false,
		} {
			c.env = []variable{{"TALLY_A", "a"}, {"TALLY_B", value}}
			e, err := c.run(t.Context())
			unstarted, ok := errors.AsType[*unstartedError](err)
			if fits && (err != nil || !e.ok()) || !fits && (!ok || !unstarted.final || !strings.Contains(err.Error(), "TALLY_B has ")) {
				t.Errorf("%d bytes of %q: got %+v, %v", len(value), value[0], e, err)
			}
		}
	})
	t.Run("B-07 what else keeps it from starting", func(t *testing.T) {
		c.env = nil
		c.command = append(c.command[:2:2], strings.Repeat("x", 4<<20)) // more than a system accepts
		_, err := c.run(t.Context())
		if unstarted, ok := errors.AsType[*unstartedError](err); !ok || unstarted.final {
			t.Errorf("too many arguments: got %v", err)
		}
		c.command = []string{"/no/such/command"}
		if _, err := c.run(t.Context()); err == nil || errors.As(err, new(*unstartedError)) {
			t.Errorf("no command: got %v", err)
		}
	})
}

package cmdutil

import (
	"strings"
	"testing"
)

const help = `Show the turns of a session, now or as of
a position.

Usage:
  tally show SESSION [flags]

Flags:
      --at string   position; default head
  -h, --help        help for show
`

// A help text that fits is unchanged. Otherwise it keeps its words, their order and its columns.
func TestFit(t *testing.T) {
	if got := fit(help, 80); got != help {
		t.Errorf("at 80 columns\n%s", got)
	}
	want := `Show the turns of a session,
now or as of a position.

Usage:
  tally show SESSION [flags]

Flags:
      --at string
          position;
              default head
  -h, --help
      help for show
`
	if got := fit(help, 28); got != want {
		t.Errorf("at 28 columns\n%s", got)
	}
	for width := 20; width < 90; width++ {
		got := fit(help, width)
		if a, b := strings.Fields(got), strings.Fields(help); strings.Join(a, " ") != strings.Join(b, " ") {
			t.Errorf("at %d columns\n%s", width, got)
		}
		for line := range strings.Lines(got) {
			if len(line)-1 > width {
				t.Errorf("at %d columns: got %q", width, line)
			}
		}
	}
}

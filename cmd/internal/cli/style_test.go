package cli_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/tallylog/tally/cmd/internal/cli"
)

func TestStyle(t *testing.T) {
	for _, c := range []struct {
		mode cli.ColorMode
		env  map[string]string
		want bool
	}{
		{cli.ColorAuto, nil, false}, // not a terminal
		{cli.ColorAlways, map[string]string{"NO_COLOR": "1"}, true},
		{cli.ColorNever, map[string]string{"FORCE_COLOR": "1"}, false},
		{cli.ColorAuto, map[string]string{"FORCE_COLOR": "1"}, true},
		{cli.ColorAuto, map[string]string{"FORCE_COLOR": "0"}, false},
		{cli.ColorAuto, map[string]string{"FORCE_COLOR": "1", "NO_COLOR": "1"}, false},
		{cli.ColorAuto, map[string]string{"TERM": "dumb"}, false},
	} {
		style := cli.NewStyle(&bytes.Buffer{}, c.mode, func(name string) string { return c.env[name] })
		if have := style.Red("x") != "x"; have != c.want {
			t.Errorf("%s %v: got coloured %v", c.mode, c.env, have)
		}
		if style.Bold("") != "" {
			t.Error("got no colours")
		}
	}
	var m cli.ColorMode
	if m.Flag().Set("sometimes") == nil || m.Flag().Set("always") != nil || m != cli.ColorAlways {
		t.Errorf("got %q", m)
	}
}

// The width of a pipe is COLUMNS. Without it nothing is cut.
func TestWidthOfPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for columns, want := range map[string]int{"60": 60, "": cli.NoWidth, "5": cli.NoWidth, "wide": cli.NoWidth} {
		t.Setenv("COLUMNS", columns)
		if have := cli.Width(w); have != want {
			t.Errorf("COLUMNS=%q: got %d", columns, have)
		}
	}
}

package cmd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// Only output that is longer than the terminal goes through the user's pager.
func TestPager(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	var turns strings.Builder
	for n := range 5_000 {
		fmt.Fprintf(&turns, "{\"role\":\"user\",\"content\":\"turn %d of many\"}\n", n+1)
	}
	output(t, strings.NewReader(turns.String()), store, "tally", "append", "chat", "-o", "jsonl")
	owner(t, store)
	seen := filepath.Join(t.TempDir(), "seen")
	keeps := "PAGER=cat >" + seen + "; echo \"paged, LESS=$LESS\""
	for name, c := range map[string]struct {
		lines int
		env   []string
		args  string
		paged bool
		shows string // text on the terminal
	}{
		"long":           {10, []string{keeps}, "show chat", true, "paged, LESS=FRX\n"},
		"log":            {10, []string{keeps}, "log chat", true, "paged, LESS=FRX\n"},
		"LESS is set":    {10, []string{keeps, "LESS=S"}, "show chat", true, "paged, LESS=S\n"},
		"help":           {10, []string{keeps}, "help show", true, "paged, LESS=FRX\n"},
		"short":          {20, []string{keeps}, "show chat --last 1", false, "turn 5000 of many"},
		"as it is long":  {6, []string{keeps}, "show chat --last 1", true, "paged, LESS=FRX\n"},
		"--no-pager":     {10, []string{keeps}, "show chat --last 50 --no-pager", false, "turn 4970 of many"},
		"JSON":           {10, []string{keeps}, "show chat --last 50 -o json", false, "turn 4970 of many"},
		"none":           {10, []string{"PAGER="}, "show chat --last 50", false, "turn 4970 of many"},
		"not there":      {10, []string{"PAGER=/nowhere/pager -x"}, "show chat --last 50", false, "turn 4970 of many"},
		"TALLY_PAGER":    {10, []string{keeps, "TALLY_PAGER=cat"}, "show chat --last 50", false, "turn 4970 of many"},
		"leaves early":   {10, []string{"PAGER=head -n 1; echo left"}, "show chat", false, "chat · conversation\nleft\n"},
		"code and words": {10, []string{keeps}, "diff chat #1 head --exit-code", true, "paged, LESS=FRX\n"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Sample(t, 3)
			os.Remove(seen)
			screen, code := onTerminal(t, 80, c.lines, looking(t, store, append(c.env, "NO_COLOR=1"), strings.Fields(c.args)...))
			if want := map[bool]int{true: 1}[strings.Contains(c.args, "--exit-code")]; code != want {
				t.Errorf("got code %d, want %d", code, want)
			}
			if !strings.Contains(screen, c.shows) {
				t.Errorf("got the terminal %.2000q, want it to contain %q", screen, c.shows)
			}
			text, err := os.ReadFile(seen)
			if paged := err == nil; paged != c.paged {
				t.Fatalf("got paged %v, want %v", paged, c.paged)
			}
			if c.args == "show chat" && err == nil {
				if whole := output(t, nil, store, "tally", "show", "chat"); string(text) != whole {
					t.Errorf("got %d bytes in the pager, want %d", len(text), len(whole))
				}
			}
		})
	}
}

// Ctrl-C goes to the pager: the text stays on the screen until the user leaves the pager, and the command's exit code
// is the same as without Ctrl-C.
func TestInterruptedPager(t *testing.T) {
	testkit.OnlyFull(t, "TestPager pages")
	_, err := exec.LookPath("less")
	testkit.Needs(t, err == nil, "less")
	store := goldenStore(t)
	term := newTerminal(t, 80, 10)
	c := looking(t, store, []string{"LESSCHARSET=utf-8"}, "show", chat)
	term.run(c)
	term.await(":")
	term.press("\x03")
	term.insist("G", "四十ノットです。") // less scrolls to the end: it still runs
	term.press("q")
	if screen, code := term.end(c); code != 0 || strings.Contains(screen, "stopping") {
		t.Errorf("got code %d: %q", code, screen)
	}
}

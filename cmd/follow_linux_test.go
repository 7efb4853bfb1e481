package cmd_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// On a terminal, show -f prints a session without a pager, then each new turn and the target of each rewind, until
// Ctrl-C. It does so as the owner of the store, and attached to another owner.
func TestShowFollows(t *testing.T) {
	for _, owned := range []bool{false, true} {
		t.Run(map[bool]string{false: "as owner", true: "attached"}[owned], func(t *testing.T) {
			if owned {
				testkit.OnlyFull(t, "the owner shows the same")
			}
			t.Parallel()
			store := filepath.Join(t.TempDir(), "store")
			add := func(session, text string) {
				output(t, strings.NewReader(`{"role":"user","content":"`+text+`"}`+"\n"), store, "tally", "append", session, "-o", "jsonl")
			}
			add("other", "elsewhere")
			add("chat", "first")
			if owned {
				owner(t, store)
			}
			term := newTerminal(t, 80, 4)
			c := looking(t, store, []string{"NO_COLOR=1"}, "show", "last", "-f")
			term.run(c)
			term.await("first")
			add("chat", "second")
			term.await("second")
			add("other", "not of this session")
			output(t, nil, store, "tally", "rewind", "chat", "--to", "#1", "--reason", "a better way", "-y")
			term.await("rewound to #1  @5  a better way")
			output(t, nil, store, "tally", "undo", "chat", "-y")
			term.await("rewind @5 taken back, to #2  @6")
			add("chat", "third")
			term.await("third")
			term.press("\x03")
			screen, code := term.end(c)
			if code != 130 || strings.Contains(screen, "not of this session") || !strings.Contains(screen, "\n#2  @3\n  user       second\n") || !strings.Contains(screen, "\n#3  @7\n  user       third\n") {
				t.Errorf("got code %d:\n%s", code, screen)
			}
		})
	}
}

package cmd_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// --mark reports whether a terminal got the stored bytes.
func TestMarkOfADocument(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	output(t, strings.NewReader("plain\n"), store, "tally", "doc", "put", "doc/plain", "--create")
	output(t, strings.NewReader(evil), store, "tally", "doc", "put", "doc/evil", "--create")
	for name, want := range map[string]string{"plain": `"direct":true`, "evil": `"direct":false`} {
		if screen, _ := onTerminal(t, 200, 50, looking(t, store, []string{"PAGER="}, "doc", "cat", "doc/"+name, "--mark")); !strings.Contains(screen, want) {
			t.Errorf("%s: got %q, want %s in it", name, screen, want)
		}
		if piped, err := looking(t, store, nil, "doc", "cat", "doc/"+name, "--mark").CombinedOutput(); err != nil || !strings.Contains(string(piped), `"direct":true`) {
			t.Errorf("%s in a pipe: got %v, %q", name, err, piped)
		}
	}
}

// On a terminal colours are the only control sequences, whatever the store contains: in text, in JSON, in stored
// bytes, and through the pager.
func TestNothingMovesTheCursorOfATerminal(t *testing.T) {
	testkit.OnlyFull(t, "TestNothingMovesTheCursor prints the same to a pipe")
	store := filepath.Join(t.TempDir(), "store")
	id := events.EscapeID(evilStore(t, store))
	panel := events.EscapeID("p" + evil)
	owner(t, store)
	for _, line := range []string{
		"ls", "ls -o json", "ls --kind conversation -o jsonl", "search word", "search hidden -o json", "search " + evil,
		"log --all-sessions", "log " + id, "log " + id + " --graph", "log " + id + " --raw", "log " + id + " -o json", "log " + panel + " -o jsonl",
		"show " + id, "show " + id + " --all", "show " + id + " --tools full", "show " + id + " --raw", "show " + id + " -o json", "show " + id + " --last 1",
		"show " + id + " --run run" + evil, "show " + id + " --run run" + evil + " --raw", "show " + panel, "show " + panel + " -o json", "show " + panel + " --raw",
		"runs " + id, "runs " + panel + " -o json", "diff " + id + " @2 @4", "diff " + id + " @2 @4 -o json", "cost " + id, "cost --by model", "cost -o json",
		"rewind " + panel, "rewind " + id + " --to #1 -n", "doc ls --leases", "doc ls --leases -o json", "doc log doc/" + id, "doc log doc/" + id + " -o jsonl", "doc diff doc/" + id, "doc diff doc/" + id + " -o json", "doc links doc/" + id,
		"doc watch --after @0 --limit 2", "doc watch --after @0 --limit 2 -o json", "doc cat doc/" + id + " --mark", "doc cat doc/" + id + "@2 -o json", "doc cat doc/" + id + " -o json", "doc put doc/" + id + " --base @1",
		"status", "status -o json", "verify", "export " + panel + " --format ailoop -o json -C " + t.TempDir(), "show no" + evil, "show " + id + " --at " + evil,
	} {
		t.Run(strings.ToValidUTF8(line[:strings.IndexAny(line+"  ", " ")], ""), func(t *testing.T) {
			for _, columns := range []int{40, 200} {
				args := strings.Split(strings.ReplaceAll(line, "\x00", ""), " ")
				c := looking(t, store, []string{"PAGER=cat <&0"}, args...)
				c.Stdin = strings.NewReader("") // no answer to questions
				screen, _ := onTerminal(t, columns, 8, c)
				bare := colour.ReplaceAllString(screen, "")
				if at := strings.IndexFunc(bare, moves); at >= 0 {
					t.Errorf("%q: got a control character: %q", args, bare[max(0, at-60):min(len(bare), at+40)])
				}
				if screen == "" {
					t.Errorf("%q: got no output", args)
				}
			}
		})
	}
}

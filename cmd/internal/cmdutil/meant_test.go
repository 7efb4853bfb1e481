package cmdutil_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/program"
)

// hintOf returns the hint below the error "unknown command".
func hintOf(t *testing.T, args ...string) string {
	t.Helper()
	var errw strings.Builder
	err := cmdutil.Run(t.Context(), program.Tally, args, strings.NewReader(""), &errw, &errw)
	if err == nil {
		t.Errorf("tally %s: got a command", strings.Join(args, " "))
		return ""
	}
	code, _ := errors.AsType[*cli.CodeError](err)
	if code == nil {
		t.Fatalf("tally %s: got %v", strings.Join(args, " "), err)
	}
	return code.Hint
}

// An unknown word leads to the command with the same purpose or a similar name, and a verb of an earlier version to its
// successor.
func TestOtherVerbs(t *testing.T) {
	for typed, want := range map[string]string{
		"list": "ls", "sessions": "ls", "find": "search", "grep": "search", "delete": "doc rm", "remove": "doc rm", "resume": "fork", "history": "log", "tail": "log -f or watch",
		"usage": "cost", "head": "show or doc cat", "blame": "log or show", "revert": "rewind", "reset": "rewind", "checkout": "rewind", "prune": "doc rm --purge or quota", "gc": "doc rm --purge or quota",
		"view": "show or doc cat", "tokens": "cost", "edit": "doc put", "add": "append or doc put", "fsck": "verify or doctor", "health": "doctor or status", "dump": "export", "start": "serve",
		"clone": "fork", "follow": "log -f or watch", "record": "exec or watch", "message": "inbox send", "retry": "queue retry", "settings": "config", "update": "version", "compare": "diff",
		"LIST": "ls", "Find": "search",
		"imprt": "import", "serach": "search", "shwo": "show", "rewnd": "rewind", "exprot": "export", "apend": "append", "statsu": "stats or status", "verfy": "verify", "compl": "completion", "wacth": "watch", "lss": "ls",
		"doc lgo": "doc log", "agent nwe": "agent new", "flow strat": "flow start", "tree statuss": "tree status", "queue build": "queue ls build", "inbox user": "inbox ls user",
	} {
		t.Run("B-28 "+typed, func(t *testing.T) {
			if got := hintOf(t, strings.Fields(typed)...); got != "Did you mean "+want+"?" {
				t.Errorf("tally %s: %s", typed, got)
			}
		})
	}
	for _, typed := range []string{"nothinglikeit", "x", "qq", "banana", "kubectl", "fnd", "foo"} {
		t.Run("B-28 nothing is like "+typed, func(t *testing.T) {
			if got := hintOf(t, typed); got != "tally --help lists the commands." {
				t.Errorf("tally %s: %s", typed, got)
			}
		})
	}
	for typed, want := range map[string]string{
		"enqueue build": "queue add", "requeue": "queue retry", "work build -- true": "queue work", "send user": "inbox send", "seen user last": "inbox ack", "attend user -- true": "inbox run",
		"agents": "agent ls", "orphans --clean": "agent orphans", "flows": "flow ls", "docs ls": "doc", "put doc/a": "doc put", "cat doc/a": "doc cat", "rm doc/a": "doc rm", "mv doc/a b": "doc mv",
		"transcripts": "transcript ls", "tend --once": "daemon run", "project": "daemon views", "Enqueue": "queue add",
	} {
		t.Run("B-28 "+typed, func(t *testing.T) {
			var errw strings.Builder
			err := cmdutil.Run(t.Context(), program.Tally, strings.Fields(typed), strings.NewReader(""), &errw, &errw)
			word := strings.Fields(typed)[0]
			if err == nil || cli.ExitCode(err) != cli.BadUsage || err.Error() != "unknown command \""+word+"\": use tally "+want {
				t.Errorf("tally %s: got %v", typed, err)
			}
			verb, _, err := program.Tally(new(cmdutil.App)).Find(strings.Fields(want))
			if err != nil || "tally "+want != verb.CommandPath() {
				t.Errorf("tally %s is not a command", want)
			}
		})
	}
	t.Run("B-28 generate", func(t *testing.T) {
		if got := hintOf(t, "generate"); !strings.Contains(got, "tally import examples/bakery") {
			t.Errorf("tally generate: %s", got)
		}
	})
	t.Run("B-28 verbs of documents", func(t *testing.T) {
		for typed, want := range map[string]string{"doc history": "Use tally doc log.", "doc backlinks": "Use tally doc links --back."} {
			if got := hintOf(t, strings.Fields(typed)...); got != want {
				t.Errorf("tally %s: %s", typed, got)
			}
		}
	})
	for _, typed := range []string{"bench", "Benchmark", "perf --seconds 5"} {
		t.Run("B-28 "+typed, func(t *testing.T) {
			if got := hintOf(t, strings.Fields(typed)...); !strings.Contains(got, "tally-bench") || !strings.Contains(got, "go -C cmd/tally-bench install") {
				t.Errorf("tally %s: %s", typed, got)
			}
		})
	}
	t.Run("B-28 exact names are no other words", func(t *testing.T) {
		root := program.Tally(new(cmdutil.App))
		for word, list := range cmdutil.OtherWords() {
			if cmd, _, err := root.Find([]string{word}); err == nil && cmd != root {
				t.Errorf("%s: got a command", word)
			}
			for _, meant := range list {
				words := strings.Fields(meant)
				cmd, rest, err := root.Find(words)
				if words[0] == "help" {
					continue
				}
				if err != nil || cmd == root {
					t.Errorf("%s: got %s, which is not a command", word, meant)
					continue
				}
				for _, flag := range rest {
					name := strings.TrimLeft(flag, "-")
					if cmd.Flags().Lookup(name) == nil && cmd.Flags().ShorthandLookup(name[:1]) == nil {
						t.Errorf("%s: got %s, which has no such flag", word, meant)
					}
				}
			}
			if slices.Contains(list, "") || len(list) > 2 {
				t.Errorf("%s: got %q", word, list)
			}
		}
	})
}

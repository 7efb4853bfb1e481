package program

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

// free lists the flags without candidates: numbers, times, positions, new names, sessions of another store.
var free = strings.Fields("at to thread base step server context key expect since until role grep after as reason at root listen metrics postgres redis producers min-cost limit last steps keep seconds seed sessions turns title owner attr expires rel below linger assignment id assertion amend remove begin pass fail reset timeout reply-to expects within due on-empty lease max-attempts priority jobs worker message without turn before http-host origin for")

// tree returns the commands of tally.
func tree(t *testing.T) *cobra.Command {
	t.Helper()
	var root *cobra.Command
	err := cmdutil.Run(t.Context(), func(a *cmdutil.App) *cobra.Command {
		root = Tally(a)
		return root
	}, []string{"version"}, strings.NewReader(""), io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// Each flag with a value has candidates or is in the list of flags without.
func TestFlagsAreCompleted(t *testing.T) {
	root := tree(t)
	all := append(root.Commands(), root)
	for i := 0; i < len(all); i++ {
		cmd := all[i]
		if cmd != root {
			all = append(all, cmd.Commands()...)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if _, ok := cmd.GetFlagCompletionFunc(f.Name); !ok && f.NoOptDefVal == "" && f.Name != "help" && f.Name != "version" && !slices.Contains(free, f.Name) {
				t.Errorf("%s --%s: no candidates, and the flag is not in the list of flags without", cmd.CommandPath(), f.Name)
			}
		})
	}
}

// A command accepts each candidate for its flags.
func TestOfferedWordsAreTaken(t *testing.T) {
	t.Setenv("TALLY_STORE", t.TempDir()+"/none")
	tried := 0
	for _, call := range []string{"ls --sort", "ls --progress", "ls --color", "ls --output", "ls --log-level", "ls --min-durability", "cost --by", "stats --by", "search x --sort", "import " + t.TempDir() + " --format", "export x --dir out --format", "show x --tools", "jobs --status"} {
		args := strings.Fields(call)
		var out bytes.Buffer
		if err := run(t.Context(), append(append([]string{cobra.ShellCompRequestCmd}, args...), ""), &out); err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.Fields(out.String()) {
			if strings.HasPrefix(word, ":") {
				continue
			}
			tried++
			if err := run(t.Context(), append(args, word), io.Discard); isUsage(err) {
				t.Errorf("%s %s: %v", call, word, err)
			}
		}
		if err := run(t.Context(), append(args, "nonsense"), io.Discard); !isUsage(err) {
			t.Errorf("%s nonsense: %v", call, err)
		}
	}
	if tried < 40 {
		t.Errorf("got only %d words", tried)
	}
}

// Each program has a completion script of its own.
func TestCompletionScripts(t *testing.T) {
	for want, root := range map[string]func(*cmdutil.App) *cobra.Command{"#compdef tally\n": Tally, "#compdef tally-ingest\n": Ingest, "#compdef tally-replay\n": Replay} {
		var out bytes.Buffer
		err := cmdutil.Run(t.Context(), root, []string{"completion", "zsh"}, strings.NewReader(""), &out, io.Discard)
		if err != nil || !strings.HasPrefix(out.String(), want) || strings.Contains(out.String(), "PROGRAM") || strings.Contains(out.String(), "FUNCTION") {
			t.Errorf("want %q, %v: %s", want, err, out.String())
		}
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	return cmdutil.Run(ctx, Tally, args, strings.NewReader(""), out, io.Discard)
}

func isUsage(err error) bool {
	code, ok := errors.AsType[*cli.CodeError](err)
	return ok && code.Code == cli.BadUsage || cli.ExitCode(err) == cli.BadUsage
}

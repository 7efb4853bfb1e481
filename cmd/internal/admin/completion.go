package admin

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/bashline"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/render"
)

// The scripts ask this program what fits, and hand the words of the line to it as they
// are. Those that cobra has let the shell evaluate the line once more: an id of the kind
// $(rm x) on it would be run by a press of Tab.
//
//go:embed shells
var shells embed.FS

var shellNames = []string{"bash", "zsh", "fish"}

func newCompletion(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Print the script that completes command lines in a shell", Args: cobra.ExactArgs(1),
		Long: `Print the script that completes verbs, flags and their values in a shell: session
ids with their titles, threads, runs, positions. Put one line into the shell's own
file:

  ~/.bashrc                   source <(tally completion bash)
  ~/.zshrc                    source <(tally completion zsh)
  ~/.config/fish/config.fish  tally completion fish | source

Nothing else is needed, bash-completion neither. What there is comes from the
catalog, as it stands on this machine; the store is not opened.`,
		Example: cmdutil.Examples("source <(tally completion bash)", "source <(tally completion zsh)", "tally completion fish | source"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(shellNames, args[0]) {
				return cli.Usagef("%q is not a shell that is known here: want bash, zsh or fish", args[0])
			}
			script, err := shells.ReadFile("shells/" + args[0])
			if err != nil {
				return err
			}
			name := cmd.Root().Name()
			_, err = strings.NewReplacer("PROGRAM", name, "FUNCTION", strings.ReplaceAll(name, "-", "_")).WriteString(a.Out, string(script))
			return err
		},
	}
}

// newBash returns what the script for bash asks: which words may stand at the end of a
// line. It prints what bash is to do beside, and on a line each what is to stand in the
// place of what readline replaces.
func newBash(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "__bash LINE BREAKS TYPE COLUMNS", Short: "Say what may stand at the end of a line of bash", Args: cobra.ExactArgs(4), Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			line, ok := bashline.Parse(args[0], args[1])
			if !ok || len(line.Words) == 0 {
				return nil
			}
			found, directive, err := request(cmd.Context(), a, append(line.Words[1:], line.Word))
			if err != nil {
				return nil // whoever presses a key is told nothing
			}
			columns, _ := strconv.Atoi(args[3])
			replies := reply(line, found, args[2] != menu && args[2] != insert, cmp.Or(columns, 80))
			_, err = fmt.Fprintln(a.Out, strings.Join(append([]string{modeOf(directive)}, replies...), "\n"))
			return err
		},
	}
}

// Types of completion that put words on the line one by one.
const (
	menu   = "37" // the code of %
	insert = "42" // that of *
)

func modeOf(d cobra.ShellCompDirective) string {
	switch {
	case d&cobra.ShellCompDirectiveError != 0:
		return "none"
	case d&cobra.ShellCompDirectiveFilterFileExt != 0:
		return "files"
	case d&cobra.ShellCompDirectiveFilterDirs != 0:
		return "folders"
	case d&cobra.ShellCompDirectiveNoSpace != 0:
		return "nospace"
	}
	return "words"
}

// request asks cobra what fits, with the words of a line without the program's name.
func request(ctx context.Context, a *cmdutil.App, words []string) (found [][2]string, d cobra.ShellCompDirective, err error) {
	var out bytes.Buffer
	if err := a.Again(ctx, append([]string{cobra.ShellCompRequestCmd}, words...), &out, io.Discard); err != nil {
		return nil, 0, err
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	last := len(lines) - 1
	n, err := strconv.Atoi(strings.TrimPrefix(lines[last], ":"))
	for _, line := range lines[:last] {
		word, what, _ := strings.Cut(line, "\t")
		found = append(found, [2]string{word, what})
	}
	return found, cobra.ShellCompDirective(n), err
}

// reply spells words as they go on the line. Where bash lists several, what they are
// stands beside them: bash puts on the line what all begin with, and that ends before.
func reply(line bashline.Line, found [][2]string, listed bool, columns int) []string {
	flag := ""
	if i := strings.IndexByte(line.Word, '='); i > 0 && strings.HasPrefix(line.Word, "-") {
		flag = line.Word[:i+1]
	}
	var list, what []string
	for _, f := range found {
		if text, ok := line.Spell(flag + f[0]); ok {
			list, what = append(list, text), append(what, f[1])
		}
	}
	if !listed || len(list) < 2 || line.Quote != 0 {
		return list
	}
	longest := 0
	for _, text := range list {
		longest = max(longest, len(text))
	}
	for i, text := range list {
		if room := columns - longest - 5; what[i] != "" && room > 8 {
			list[i] = text + strings.Repeat(" ", longest-len(text)+2) + "(" + render.Cut(what[i], room) + ")"
		}
	}
	return list
}

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

// The scripts ask this program for completions, and pass the words of the line unchanged. Cobra's own scripts let the
// shell evaluate the line again, so an id such as $(rm x) on the line would run when the user presses Tab.
//
//go:embed shells
var shells embed.FS

var shellNames = []string{"bash", "zsh", "fish"}

func newCompletion(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Print the script that completes command lines in a shell", Args: cobra.ExactArgs(1),
		Long: `Print the script that completes commands, flags, ids and names of documents in a shell.
Sessions are listed with their titles. Add one line to the shell's configuration file:

  ~/.bashrc                   source <(tally completion bash)
  ~/.zshrc                    source <(tally completion zsh)
  ~/.config/fish/config.fish  tally completion fish | source

Nothing else is needed, not even bash-completion. Values come from the catalog on this
machine. The store is not opened.`,
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

// newBash returns the command that the script for bash calls. The first line of its output tells bash what else to do;
// each further line is a replacement for the part of the word that readline replaces.
func newBash(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "__bash LINE BREAKS TYPE COLUMNS", Short: "Print completions of a line for bash", Args: cobra.ExactArgs(4), Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			line, ok := bashline.Parse(args[0], args[1])
			if !ok || len(line.Words) == 0 {
				return nil
			}
			found, directive, err := request(cmd.Context(), a, append(line.Words[1:], line.Word))
			if err != nil {
				return nil // a key press must not print errors
			}
			columns, _ := strconv.Atoi(args[3])
			replies := reply(line, found, args[2] != menu && args[2] != insert, cmp.Or(columns, 80))
			_, err = fmt.Fprintln(a.Out, strings.Join(append([]string{modeOf(directive)}, replies...), "\n"))
			return err
		},
	}
}

// Types of completion that insert words one by one: values of COMP_TYPE.
const (
	menu   = "37" // code of the character %
	insert = "42" // code of the character *
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

// request asks cobra for completions of a line, given its words without the program's name.
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

// reply quotes words for the line. If bash lists several, descriptions follow them. This is safe because bash inserts
// only the common prefix, which ends before a description.
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
	widest := 0
	for _, text := range list {
		widest = max(widest, len(text))
	}
	for i, text := range list {
		if room := columns - widest - 5; what[i] != "" && room > 8 {
			list[i] = text + strings.Repeat(" ", widest-len(text)+2) + "(" + render.Cut(what[i], room) + ")"
		}
	}
	return list
}

package cmdutil

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
)

// positions explains how sessions and positions are named.
const positions = `A session is named by its id, a unique beginning of the id, or "last".

A position is one of:

  head, start         the latest state, and the state before the first event
  @1234               an offset in the log
  #12, gpt-5#3        turn 12 of the thread main, turn 3 of another thread
  ~2                  the state before the last 2 turns
  2026-08-22T10:00Z   a time as show and log print it; without a zone it is UTC
  -10m                10 minutes ago
  e:ID                the event with an id
`

// exitCodes explains the exit codes.
const exitCodes = `Exit codes:

  0    ok
  1    failed
  2    invalid flag, argument, value or configuration
  3    partial: some input was unreadable, the rest was stored
  4    not found: no such session, document or position, or no result
  5    integrity: a record is lost or damaged, or verify found a difference
  6    conflict: another writer was faster, or the state does not allow the change
  7    the store is unreachable, full or locked, or did not answer
  8    the store is too old or too new, could lose records as it is configured, or
       promises less than --min-durability
  129  stopped by SIGHUP
  130  stopped by SIGINT
  143  stopped by SIGTERM
`

// grammar is cobra's usage template, without the flags that all commands share: help flags lists them.
const grammar = `Usage:{{if and .Runnable (not .HasAvailableSubCommands)}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if .LocalNonPersistentFlags.HasAvailableFlags}}

Flags:
{{.LocalNonPersistentFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}

Flags of every command, such as -o json, --store and --namespace: {{.Root.Name}} help flags
`

// speak sets the help texts of a program, and its errors for unknown flags and wrong arguments.
func speak(root *cobra.Command) {
	root.Version = BuildOf().String()
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetUsageTemplate(grammar)
	root.SetHelpCommand(newHelp(root))
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &cli.CodeError{Code: cli.BadUsage, Err: err, Hint: "See " + c.CommandPath() + " --help."}
	})
	checkArgs(root)
}

// checkArgs adds the usage line to the errors of each command for wrong arguments.
func checkArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return wrongArgs(c, args, err)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		checkArgs(sub)
	}
}

func wrongArgs(c *cobra.Command, args []string, err error) error {
	name, wants, hint := c.Name(), len(strings.Fields(c.Use)) > 1, "Usage: "+c.UseLine()
	if name == "ls" {
		hint += "; " + strings.TrimSuffix(c.CommandPath(), "ls") + "show shows one"
	}
	switch invalid := strings.HasPrefix(err.Error(), "invalid argument"); {
	case invalid: // the error is complete
	case !wants && len(args) > 0:
		err = fmt.Errorf("%s takes no argument, but got %q", name, args[0])
	case len(args) == 0:
		err = fmt.Errorf("%s needs an argument", name)
	default:
		err = fmt.Errorf("%s: %d arguments are too many or too few", name, len(args))
	}
	return &cli.CodeError{Code: cli.BadUsage, Err: err, Hint: hint}
}

// isKnown returns an error with a hint if the arguments do not begin with a command.
func isKnown(root *cobra.Command, args []string) error {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return nil // a shell asks for completions
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultHelpFlag() // without it, Find takes the next word for the value of --help
	root.InitDefaultVersionFlag()
	_, _, err := root.Find(args)
	if err == nil {
		return nil
	}
	word := unknownWord(root, args)
	if now := movedCommands[strings.ToLower(word)]; now != "" {
		return &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("unknown command %q: use tally %s", word, now)}
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return &cli.CodeError{Code: cli.BadUsage, Err: errors.New(text), Hint: HintFor(root, word)}
}

// unknownWord returns the first argument that is not a flag.
func unknownWord(root *cobra.Command, args []string) string {
	root.DisableSuggestions = true
	_, rest, _ := root.Find(args)
	for _, word := range rest {
		if !strings.HasPrefix(word, "-") {
			return word
		}
	}
	return ""
}

// Noun adds verbs to a command that does nothing itself. Any other word is refused with the verb that may be meant.
func Noun(cmd *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(verbs...)
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0]), Hint: HintFor(cmd, args[0])}
	}
	return cmd
}

func newHelp(root *cobra.Command) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use: "help [COMMAND | concepts | flags | positions | exit-codes]", Short: "Show the help of a command, or of a topic",
		Long: `Show the help of a command or of a topic: concepts, flags, positions, exit-codes. Without an
argument it lists the most used commands, with --all every command.`,
		Example: Examples("tally help", "tally help --all", "tally help concepts", "tally help show"),
		RunE: func(c *cobra.Command, args []string) error {
			text := ""
			switch {
			case len(args) == 1:
				text = topic(c.Root(), args[0])
			case len(args) == 0 && all:
				text = overview(c.Root(), true)
			}
			if text != "" {
				out := c.OutOrStdout()
				_, err := fmt.Fprint(out, fit(text, cli.Width(out)))
				return err
			}
			if err := isKnown(c.Root(), args); err != nil {
				return err
			}
			about, _, _ := c.Root().Find(args)
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list every command")
	if groups := root.Groups(); len(groups) > 0 {
		cmd.GroupID = groups[len(groups)-1].ID
		cmd.Annotations = map[string]string{order: "99"}
		for _, verb := range root.Commands() {
			if verb.GroupID == cmd.GroupID && verb.Annotations[groupMore] != "" {
				cmd.Annotations[groupMore] = "yes"
			}
		}
	}
	return cmd
}

func topic(root *cobra.Command, name string) string {
	switch name {
	case "flags":
		return "Flags of every command:\n\n" + root.PersistentFlags().FlagUsages()
	case "exit-codes":
		return exitCodes
	case "positions":
		return positions
	case "concepts":
		return concepts
	}
	return ""
}

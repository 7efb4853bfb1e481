package cmdutil

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
)

// Exits are the exit codes in a few lines.
const Exits = `Exit codes: 0 ok, 1 failed, 2 usage, 3 partial (some input was unreadable, the
rest went in), 4 not found, 5 integrity, 6 conflict, 7 store unreachable,
8 store incompatible, 129, 130 and 143 signals.`

// Positions says how sessions and positions are named.
const Positions = `A session is named by its id, a unique beginning of it, or "last".
A position is head, start, @1234 (offset), #12 (turn 12 of main), gpt-5#3, ~2
(without the last 2 turns), 2026-08-22T10:00Z, -10m, or e:<event id>. A time is
one that show or log prints; without a zone it is UTC.`

// exitCodes are the same, each with what it means.
const exitCodes = `Exit codes:

  0    ok
  1    failed
  2    a flag, an argument or a value that does not fit, or a wrong configuration
  3    partial: some input was unreadable, the rest went in
  4    no such session, document or position; nothing was found
  5    integrity: something is lost or damaged, or verify found a difference
  6    conflict: something came in between
  7    the store cannot be reached, is full, did not answer, or cannot be opened as it is
  8    the store is too old or too new, could lose records as it is configured, or promises
       less than --min-durability asks for
  129  stopped by SIGHUP
  130  stopped by SIGINT
  143  stopped by SIGTERM
`

// grammar is how each command is to be called: cobra's, with the flags that all commands
// have left to a topic of the help.
const grammar = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$cmds := .Commands}}{{range $group := .Groups}}

{{.Title}}{{range $cmds}}{{if (and (eq .GroupID $group.ID) (or .IsAvailableCommand (eq .Name "help")))}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if not .AllChildCommandsHaveGroup}}

{{if .Groups}}Also{{else}}Commands{{end}}:{{range $cmds}}{{if (and (eq .GroupID "") (or .IsAvailableCommand (eq .Name "help")))}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if .LocalNonPersistentFlags.HasAvailableFlags}}

Flags:
{{.LocalNonPersistentFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}

Flags of every command, such as -o json, --store and --namespace: {{.Root.Name}} help flags
`

// speak has a command's tree say how it is called: in the help, and where it is called
// otherwise.
func speak(root *cobra.Command) {
	root.Version = BuildOf().String()
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetUsageTemplate(grammar)
	root.SetHelpCommand(newHelp())
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &cli.CodeError{Code: cli.BadUsage, Err: err, Hint: "See " + c.CommandPath() + " --help."}
	})
	checkArgs(root)
}

// checkArgs has each command refuse wrong arguments with how it is called.
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
		hint += "; one session is shown by " + c.Root().Name() + " show"
	}
	switch invalid := strings.HasPrefix(err.Error(), "invalid argument"); {
	case invalid: // which says all
	case !wants && len(args) > 0:
		err = fmt.Errorf("%s takes no argument, and there is %q", name, args[0])
	case len(args) == 0:
		err = fmt.Errorf("%s lacks an argument", name)
	default:
		err = fmt.Errorf("%s has %d arguments, which are too many or too few", name, len(args))
	}
	return &cli.CodeError{Code: cli.BadUsage, Err: err, Hint: hint}
}

// isKnown refuses arguments that begin with no command, and says which may be meant.
func isKnown(root *cobra.Command, args []string) error {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return nil // a shell asks what could come next
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultHelpFlag() // else what stands behind --help were its value
	root.InitDefaultVersionFlag()
	_, _, err := root.Find(args)
	if err == nil {
		return nil
	}
	what, _, _ := strings.Cut(err.Error(), "\n")
	return &cli.CodeError{Code: cli.BadUsage, Err: errors.New(what), Hint: HintFor(root, unknownWord(root, args))}
}

// unknownWord returns the word in the place of a command.
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

// Family has a command that does nothing itself, and has commands of its own, refuse a
// word that is not one of them.
func Family(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0]), Hint: HintFor(cmd, args[0])}
	}
	return cmd
}

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND | flags | exit-codes | positions]", Short: "Say how a command is called, or about flags, exit-codes, positions",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				if text := topic(c.Root(), args[0]); text != "" {
					out := c.OutOrStdout()
					_, err := fmt.Fprint(out, fit(text, cli.Width(out)))
					return err
				}
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
}

func topic(root *cobra.Command, name string) string {
	switch name {
	case "flags":
		return "Flags of every command:\n\n" + root.PersistentFlags().FlagUsages()
	case "exit-codes":
		return exitCodes
	case "positions":
		return Positions + "\n"
	}
	return ""
}

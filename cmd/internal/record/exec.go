package record

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/agents/stream"
	"github.com/tallylog/tally/internal/render/plain"
)

// acpFormat is the format with two recorded directions.
const acpFormat = "acp"

// executor runs a command and records its output.
type executor struct {
	app    *cmdutil.App
	format string
	redact string
	quiet  bool
	linger time.Duration
}

func newExec(a *cmdutil.App) *cobra.Command {
	x := &executor{app: a, redact: "on"}
	formats := append(stream.Formats(), acpFormat)
	cmd := &cobra.Command{
		Use: "exec [--format FORMAT] -- COMMAND [ARGUMENT]...", Short: "Run a command and record its output as a session",
		Long: `Run a command and record its output, line by line, as a session. Its input, output, errors,
signals and exit code pass unchanged; as with tee, the output of the command is a pipe. A
problem with the store does not affect the command: lines that could not be stored are kept
in the state folder, and the next exec or watch stores them.

For agents that print JSON, the session has the same turns as their screen: codex exec
--json, gemini and claude with --output-format stream-json, and pi --mode json are
recognised by their arguments. For any other command each line is stored as it is. With
--format acp, the default for gemini --acp, tally passes the Agent Client Protocol between
an editor and an agent, and records both directions.

If tally watch also reads the files of such an agent, the costs of Codex and Gemini CLI
count twice, because their output does not name the response.`,
		Example: cmdutil.Examples("tally exec -- codex exec --json 'fix the tests'", "tally exec --format acp -- my-agent --stdio", "tally exec -- make test"),
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return x.run(args) },
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.Var(cli.OneOf(&x.format, "format", formats...), "format", "what the command prints: "+cmdutil.Or(formats)+" (default: by the command, else lines)")
	f.Var(cli.OneOf(&x.redact, "when", "on", "off"), "redact", "on or off: whether known shapes of secrets are taken out of lines before they are stored")
	f.BoolVarP(&x.quiet, "quiet", "q", false, "say nothing at the end, unless something was not recorded")
	f.DurationVar(&x.linger, "linger", 5*time.Second, "after the command has ended, how long to wait for the output of processes that it left running, and then for the store")
	return cmd
}

// formatOf returns the format of a command's output, as far as its arguments tell.
func formatOf(command []string) string {
	program := strings.TrimSuffix(filepath.Base(command[0]), ".exe")
	has := func(flags ...string) bool {
		return slices.ContainsFunc(command[1:], func(arg string) bool { return slices.Contains(flags, arg) })
	}
	if program == "gemini" && has("--acp", "--experimental-acp") || strings.HasSuffix(program, "-acp") {
		return acpFormat
	}
	return stream.FormatOf(command)
}

func (x *executor) run(command []string) error {
	if x.format == "" {
		x.format = formatOf(command)
	}
	r := x.recorder(command)
	e, err := x.spawn(command, r.tape)
	if err != nil {
		r.discard()
		return err
	}
	patience, stop := withSignals(x.linger)
	defer stop()
	x.say(r.end(patience, e))
	if e.Exit != 0 {
		return cli.Silent(e.Exit)
	}
	return nil
}

// recorded is the result of a recording.
type recorded struct {
	Sessions []string `json:"sessions"`
	Lines    int      `json:"lines"`
	Redacted int      `json:"redacted"` // places
	Durable  bool     `json:"durable"`  // the whole recording is in the store
	File     string   `json:"file,omitempty"`
	Problem  string   `json:"problem,omitempty"` // why a part was not recorded, or is not in the store
	Twice    string   `json:"twice,omitempty"`   // session with the same lines from the agent's own files
	TakenUp  int      `json:"takenUp,omitempty"` // number of earlier recordings that were stored now
}

// say prints the result of a recording on standard error. Standard output belongs to the command.
func (x *executor) say(r recorded) {
	switch {
	case x.app.Format != cli.Text:
		_ = cli.WriteJSON(x.app.Err, x.app.Format, r) // a write error cannot be reported
	case !x.quiet || r.Problem != "":
		fmt.Fprintln(x.app.Err, plain.Printable("tally: "+r.text()))
	}
}

func (r recorded) text() string {
	text := "recorded " + plain.Count(r.Lines, "line")
	if len(r.Sessions) > 0 {
		text += " of " + strings.Join(r.Sessions, ", ")
	}
	if r.Redacted > 0 {
		text += ", " + plain.Count(r.Redacted, "secret") + " taken out"
	}
	switch {
	case r.File != "":
		text += fmt.Sprintf("; not in the store yet (%s): the next exec or watch takes it up from %s", r.Problem, r.File)
	case r.Problem != "":
		text += "; " + r.Problem
	}
	if r.Twice != "" {
		text += "; " + r.Twice + " is in the store too, and what both cost counts twice"
	}
	if r.TakenUp > 0 {
		text += "; took up " + plain.Count(r.TakenUp, "recording") + " left by others"
	}
	return text
}

// withSignals returns a context that ends after a time or at a signal.
func withSignals(d time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := notified(context.Background())
	ctx, cancel := context.WithTimeout(ctx, d)
	return ctx, func() { cancel(); stop() }
}

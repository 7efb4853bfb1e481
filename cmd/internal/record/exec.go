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

// acpFormat is the format of which both directions are recorded.
const acpFormat = "acp"

// executor runs a command and records what it prints.
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
		Use: "exec [--format FORMAT] -- COMMAND [ARGUMENT]...", Short: "Run a command, and record what it prints while it runs",
		Long: `Run a command as if tally were not there, and record what it prints, line by
line, as a session. Its input, output, errors, signals and exit code pass
unchanged; that its output is recorded it sees only by the fact that it is a
pipe, as before tee. Whatever happens to the store, the command does not
notice: what could not be stored lies in the state folder, and the next exec or
watch takes it up.

Of agents that print JSON the session reads as their screen does: codex exec
--json, gemini and claude with --output-format stream-json, and pi --mode json
are known by their arguments. Of any other command the lines are kept. With
--format acp, which is known for gemini --acp, tally stands between an editor
and an agent that speak the Agent Client Protocol, and records both.

Such an agent may also keep files that tally watch reads: Codex and Gemini CLI
then cost twice, because nothing in their output says which response it was.`,
		Example: cmdutil.Examples("tally exec -- codex exec --json 'fix the tests'", "tally exec --format acp -- my-agent --stdio", "tally exec -- make test"),
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return x.run(args) },
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.Var(cli.OneOf(&x.format, "format", formats...), "format", "what the command prints: "+cmdutil.Or(formats)+" (default: by the command, else lines)")
	f.Var(cli.OneOf(&x.redact, "when", "on", "off"), "redact", "on or off: whether known shapes of secrets are taken out of lines before they are stored")
	f.BoolVarP(&x.quiet, "quiet", "q", false, "say nothing at the end, unless something was not recorded")
	f.DurationVar(&x.linger, "linger", 5*time.Second, "how long to wait, once the command has ended, for what programs print that it left behind, and then for the store")
	return cmd
}

// formatOf returns the format that a command prints, as far as that is sure.
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

// recorded is what came of a recording.
type recorded struct {
	Sessions []string `json:"sessions"`
	Lines    int      `json:"lines"`
	Redacted int      `json:"redacted"` // places
	Durable  bool     `json:"durable"`  // all of it is in the store
	File     string   `json:"file,omitempty"`
	Problem  string   `json:"problem,omitempty"` // why something was not recorded, or is not in the store
	Twice    string   `json:"twice,omitempty"`   // the session that the agent's own files are
	TakenUp  int      `json:"takenUp,omitempty"` // recordings that were left, and are in the store now
}

// say says what came of a recording, on standard error: standard output is the command's.
func (x *executor) say(r recorded) {
	switch {
	case x.app.Format != cli.Text:
		_ = cli.WriteJSON(x.app.Err, x.app.Format, r) // nobody is left to be told
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

// withSignals returns a context that ends after a while, or when the user has had enough.
func withSignals(d time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := notified(context.Background())
	ctx, cancel := context.WithTimeout(ctx, d)
	return ctx, func() { cancel(); stop() }
}

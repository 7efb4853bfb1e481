package team

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/stores/tavern"
)

func newAgentVerify(a *cmdutil.App) *cobra.Command {
	v := &verifier{app: a}
	cmd := &cobra.Command{
		Use: "verify ID", Short: "Record whether a commitment is kept, or run its assertion", Args: cobra.ExactArgs(1),
		Long: `Record whether a commitment of an agent is kept, or run its assertion to find out.

--run runs the assertion of a commitment. This is a command in the agent's file, which any
writer of the store may have changed. It is therefore printed first, and runs only if you
confirm it on the terminal or with -y. A shell runs it in this directory, without input, for
at most --timeout. If it exits with code 0 the commitment has passed. Otherwise the commitment
has failed, with the last line of output as the reason, and the exit code is 1. No other
command of tally runs text from a document.

--run also checks a commitment again that has passed or failed. --pass and --fail record the
result of a check by hand, --begin that a check has begun, --reset that the result is unknown.

` + agentNames + `
` + commitmentNames,
		Example: cmdutil.Examples("tally agent verify kettle --run 'The tests pass'", "tally agent verify kettle --run 1f3a --timeout 30s -y -o json", "tally agent verify kettle --fail 'It is warm' --reason 'it is cold'"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := v.check(); err != nil {
				return err
			}
			err := changed(cmd.Context(), a, args[0], func(m *member) error { return v.verify(cmd.Context(), m) })
			if err == nil && v.failed {
				return cli.Silent(cli.Failed)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&v.run, "run", "", "commitment with the assertion to run")
	f.StringVar(&v.begin, "begin", "", "commitment that is being checked")
	f.StringVar(&v.pass, "pass", "", "commitment that is kept")
	f.StringVar(&v.fail, "fail", "", "commitment that is not kept")
	f.StringVar(&v.reset, "reset", "", "commitment to set back to pending")
	f.StringVar(&v.reason, "reason", "", "with --fail, the reason")
	f.DurationVar(&v.timeout, "timeout", 10*time.Minute, "with --run, the time limit")
	f.BoolVarP(&v.yes, "yes", "y", false, "with --run, do not ask for confirmation")
	return cmd
}

type verifier struct {
	app                           *cmdutil.App
	run, begin, pass, fail, reset string
	reason                        string
	timeout                       time.Duration
	yes                           bool
	failed                        bool
}

func (v *verifier) check() error {
	ways := 0
	for _, name := range []string{v.run, v.begin, v.pass, v.fail, v.reset} {
		if name != "" {
			ways++
		}
	}
	switch {
	case ways != 1:
		return cli.Usagef("want one of --run, --begin, --pass, --fail and --reset, with a commitment")
	case v.reason != "" && v.fail == "":
		return cli.Usagef("--reason can only be used with --fail")
	case v.timeout <= 0:
		return cli.Usagef("--timeout %v: want a time", v.timeout)
	}
	return nil
}

func (v *verifier) verify(ctx context.Context, m *member) error {
	c, err := commitmentNamed(ctx, m, v.run+v.begin+v.pass+v.fail+v.reset)
	switch {
	case err != nil:
		return err
	case v.run != "":
		return v.assert(ctx, m, c)
	}
	return m.do(ctx, func(agent *tavern.Agent) error {
		switch {
		case v.begin != "":
			return agent.Verify(ctx, c.ID)
		case v.reset != "":
			return agent.Reset(ctx, c.ID)
		case c.Status == tavern.CommitmentPending:
			if err := agent.Verify(ctx, c.ID); err != nil {
				return err
			}
		}
		if v.pass != "" {
			return agent.Pass(ctx, c.ID)
		}
		return agent.Fail(ctx, c.ID, v.reason)
	})
}

// assert runs the assertion of a commitment, and records its result.
func (v *verifier) assert(ctx context.Context, m *member, c tavern.Commitment) error {
	if c.Assertion == "" {
		return cli.Usagef("the commitment %q has no assertion to run: check it by hand, and use --pass or --fail", c.Description)
	}
	command := plain.Printable(c.Assertion)
	if err := v.app.Confirm(v.yes, "Run "+command+" ?"); err != nil {
		if asked, ok := errors.AsType[*cli.CodeError](err); ok && asked.Code == cli.BadUsage {
			asked.Hint = "It would run: " + command + "\n  Add -y to run it without confirmation."
		}
		return err
	}
	if err := m.do(ctx, func(agent *tavern.Agent) error { return beginCheck(ctx, agent, c) }); err != nil {
		return err
	}
	fmt.Fprintf(v.app.Err, "running: %s\n", command)
	out := runAssertion(ctx, c.Assertion, v.timeout)
	out.print(v.app.Err)
	if ctx.Err() != nil { // interrupted: the result is unknown
		last, cancel := lastWord(ctx)
		defer cancel()
		return errors.Join(context.Cause(ctx), m.do(last, func(agent *tavern.Agent) error { return agent.Reset(last, c.ID) }))
	}
	return v.judge(ctx, m, c, out)
}

// beginCheck records that a check of the commitment begins, also if it had a result.
func beginCheck(ctx context.Context, agent *tavern.Agent, c tavern.Commitment) error {
	if c.Status == tavern.CommitmentPassed || c.Status == tavern.CommitmentFailed {
		if err := agent.Reset(ctx, c.ID); err != nil {
			return err
		}
	}
	return agent.Verify(ctx, c.ID)
}

// judge records the result of an assertion. If the assertion was changed meanwhile, it records nothing.
func (v *verifier) judge(ctx context.Context, m *member, c tavern.Commitment, out runOutcome) error {
	now, err := commitmentNamed(ctx, m, c.ID)
	switch {
	case err != nil:
		return err
	case now.Assertion != c.Assertion:
		return &cli.CodeError{Code: cli.Conflict, Err: fmt.Errorf("the assertion of commitment %q was changed while it ran: nothing was recorded", c.Description)}
	}
	v.failed = out.failure != ""
	return m.do(ctx, func(agent *tavern.Agent) error {
		if v.failed {
			return agent.Fail(ctx, c.ID, out.failure)
		}
		return agent.Pass(ctx, c.ID)
	})
}

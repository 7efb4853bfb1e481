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
		Use: "verify ID", Short: "Say whether a commitment is kept, or run its assertion to see", Args: cobra.ExactArgs(1),
		Long: `Say whether a commitment is kept, or run its assertion to see.

--run runs the assertion of one commitment: a command that stands in the agent's file,
where anybody may have written it who may write to the store. It is shown first, and run
only if that is confirmed on the terminal, or with -y. It is a shell's child in this
directory, without input, and is ended after --timeout. If it exits with 0 the commitment
has passed, else it has failed, with the last line that it printed as the reason; the exit
code is 1 then. Nothing else in tally runs what stands in a document.

A commitment that has passed or failed is judged anew by --run. --pass and --fail say what
somebody saw, --begin that it is being looked at, --reset that nothing is known.

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
	f.StringVar(&v.run, "run", "", "commitment whose assertion is to be run")
	f.StringVar(&v.begin, "begin", "", "commitment that is being looked at")
	f.StringVar(&v.pass, "pass", "", "commitment that is kept")
	f.StringVar(&v.fail, "fail", "", "commitment that is not kept")
	f.StringVar(&v.reset, "reset", "", "commitment of which nothing is known again")
	f.StringVar(&v.reason, "reason", "", "with --fail, why")
	f.DurationVar(&v.timeout, "timeout", 10*time.Minute, "with --run, how long it may take")
	f.BoolVarP(&v.yes, "yes", "y", false, "with --run, run it without asking")
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
		return cli.Usagef("--reason goes with --fail")
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

// assert runs the assertion of a commitment, and records what came of it.
func (v *verifier) assert(ctx context.Context, m *member, c tavern.Commitment) error {
	if c.Assertion == "" {
		return cli.Usagef("the commitment %q has no assertion that could be run: look, and say --pass or --fail", c.Description)
	}
	command := plain.Printable(c.Assertion)
	if err := v.app.Confirm(v.yes, "Run "+command+" ?"); err != nil {
		if asked, ok := errors.AsType[*cli.CodeError](err); ok && asked.Code == cli.BadUsage {
			asked.Hint = "It would run: " + command + "\n  Add -y to have it run without being asked."
		}
		return err
	}
	if err := m.do(ctx, func(agent *tavern.Agent) error { return started(ctx, agent, c) }); err != nil {
		return err
	}
	fmt.Fprintf(v.app.Err, "running: %s\n", command)
	out := runAssertion(ctx, c.Assertion, v.timeout)
	out.print(v.app.Err)
	if ctx.Err() != nil { // nobody knows what would have come of it
		last, cancel := lastWord(ctx)
		defer cancel()
		return errors.Join(context.Cause(ctx), m.do(last, func(agent *tavern.Agent) error { return agent.Reset(last, c.ID) }))
	}
	return v.judge(ctx, m, c, out)
}

// started has a commitment be looked at, whatever was found of it before.
func started(ctx context.Context, agent *tavern.Agent, c tavern.Commitment) error {
	if c.Status == tavern.CommitmentPassed || c.Status == tavern.CommitmentFailed {
		if err := agent.Reset(ctx, c.ID); err != nil {
			return err
		}
	}
	return agent.Verify(ctx, c.ID)
}

// judge records what came of an assertion, if it is still what was promised.
func (v *verifier) judge(ctx context.Context, m *member, c tavern.Commitment, out outcome) error {
	now, err := commitmentNamed(ctx, m, c.ID)
	switch {
	case err != nil:
		return err
	case now.Assertion != c.Assertion:
		return &cli.CodeError{Code: cli.Conflict, Err: fmt.Errorf("the commitment %q says something else now than what was run: nothing was recorded", c.Description)}
	}
	v.failed = out.failure != ""
	return m.do(ctx, func(agent *tavern.Agent) error {
		if v.failed {
			return agent.Fail(ctx, c.ID, out.failure)
		}
		return agent.Pass(ctx, c.ID)
	})
}

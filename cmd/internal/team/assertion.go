package team

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
)

// lingering is the time that processes of an assertion may hold its output open after its end.
const lingering = time.Second

// maxSaid is the maximum size of the kept output, maxReason that of a reason.
const (
	maxSaid   = 16 << 10
	maxReason = 200
)

// runOutcome is the result of an assertion.
type runOutcome struct {
	failure string // on one line; "": the assertion holds
	said    []byte // end of its output
}

// runAssertion runs a command in a shell with a time limit. At the end it kills the processes that the command left.
func runAssertion(ctx context.Context, command string, limit time.Duration) runOutcome {
	running, stop := context.WithTimeout(ctx, limit)
	defer stop()
	said := &tail{most: maxSaid}
	cmd := shell(running, command)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = said, said, lingering
	err := cmd.Run()
	if cmd.Process != nil {
		_ = cmd.Cancel() // there may be nothing to kill
	}
	out := runOutcome{said: said.buf}
	switch {
	case running.Err() != nil && ctx.Err() == nil:
		out.failure = fmt.Sprintf("not over after %v", limit)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		out.failure = err.Error()
	}
	if last := strings.TrimSpace(render.Cut(said.last(), maxReason)); out.failure != "" && last != "" {
		out.failure += ": " + last
	}
	return out
}

// print prints the output as text.
func (o runOutcome) print(w io.Writer) {
	if text := strings.TrimRight(string(o.said), "\n"); text != "" {
		fmt.Fprintln(w, plain.Printable(text))
	}
}

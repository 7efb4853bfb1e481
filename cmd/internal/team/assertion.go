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

// lingering is how long what an assertion has started may hold its output open once the
// assertion itself is over.
const lingering = time.Second

// maxSaid is how much of its output is kept, and maxReason how much of a line is a reason.
const (
	maxSaid   = 16 << 10
	maxReason = 200
)

// outcome is what came of running an assertion.
type outcome struct {
	failure string // one line; "": it holds
	said    []byte // the end of what it printed
}

// runAssertion runs a command in a shell, for so long at the most. What it leaves behind is
// ended with it.
func runAssertion(ctx context.Context, command string, limit time.Duration) outcome {
	running, stop := context.WithTimeout(ctx, limit)
	defer stop()
	said := &tail{most: maxSaid}
	cmd := shell(running, command)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = said, said, lingering
	err := cmd.Run()
	if cmd.Process != nil {
		_ = cmd.Cancel() // that there is nothing to end is no error
	}
	out := outcome{said: said.buf}
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

// print shows what was printed, as text.
func (o outcome) print(w io.Writer) {
	if text := strings.TrimRight(string(o.said), "\n"); text != "" {
		fmt.Fprintln(w, plain.Printable(text))
	}
}

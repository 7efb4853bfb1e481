package crew

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/tallylog/tally/internal/plain"
	"github.com/tallylog/tally/internal/render"
)

// lingering is how long what an assertion has started may hold its output open once the
// assertion itself is over.
const lingering = time.Second

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
	var said tail
	cmd := shell(running, command)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, lingering
	err := cmd.Run()
	if cmd.Process != nil {
		_ = cmd.Cancel() // that there is nothing to end is no error
	}
	out := outcome{said: said.bytes}
	switch {
	case running.Err() != nil && ctx.Err() == nil:
		out.failure = fmt.Sprintf("not over after %v", limit)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		out.failure = err.Error()
	}
	if last := out.last(); out.failure != "" && last != "" {
		out.failure += ": " + last
	}
	return out
}

// last is the last line that was printed, cut.
func (o outcome) last() string {
	const most = 200
	lines := strings.Split(strings.TrimRight(string(o.said), " \t\r\n"), "\n")
	return strings.TrimSpace(render.Cut(lines[len(lines)-1], most))
}

// print shows what was printed, as text.
func (o outcome) print(w io.Writer) {
	if text := strings.TrimRight(string(o.said), "\n"); text != "" {
		fmt.Fprintln(w, plain.Printable(text))
	}
}

// tail keeps the end of what is written to it.
type tail struct{ bytes []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	const most = 16 << 10
	t.bytes = append(t.bytes, p...)
	if over := len(t.bytes) - most; over > most {
		t.bytes = append(t.bytes[:0], t.bytes[over:]...)
	}
	return len(p), nil
}

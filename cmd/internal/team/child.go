package team

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/cli"
)

// A child is the command that was named, run for one message or item: what that says is its
// input and its environment, and never a part of the command.
type child struct {
	command []string
	env     []string // beside that of this process
	stdin   []byte
	stdout  io.Writer
	stderr  io.Writer
}

// ended is how a child ended.
type ended struct {
	exit    int    // 128 and the signal's number, if one ended it
	signal  string // that ended it; "": none did
	stopped bool   // it was told to end before it had
	said    string // the last line that it wrote to its standard error
	took    time.Duration
}

// ok reports whether the child did what it was to do.
func (e ended) ok() bool { return e.exit == 0 }

// reason says why it did not.
func (e ended) reason() string {
	text := fmt.Sprintf("exit code %d", e.exit)
	if e.signal != "" {
		text = "ended by a signal: " + e.signal
	}
	if e.said != "" {
		text += ": " + e.said
	}
	return text
}

// Exit codes of what cannot be run, as shells have them.
const (
	notExecutable = 126
	notFound      = 127
	bySignal      = 128 // and the signal's number
)

// inTime is how long a child has to end that was told to, with all that it has started;
// then they are killed.
const inTime = 5 * time.Second

// run runs the child to its end. When ctx is done it is told to end. An error says that it
// could not be started.
func (c child) run(ctx context.Context) (ended, error) {
	began, said := time.Now(), &tail{most: maxTail}
	cmd := exec.CommandContext(ctx, c.command[0], c.command[1:]...)
	if errors.Is(cmd.Err, exec.ErrDot) {
		cmd.Err = nil // whoever has the working directory in PATH means it
	}
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.stdin), c.stdout, io.MultiWriter(c.stderr, said)
	cmd.WaitDelay = inTime // also for what it has left behind and that holds its output
	apart(cmd)
	if err := cmd.Start(); err != nil {
		return ended{}, notStarted(c.command[0], err)
	}
	_ = cmd.Wait() // its end is in the state, and input that it did not read is not an error
	if ctx.Err() != nil {
		killRest(cmd)
	}
	e := endOf(cmd.ProcessState)
	e.said, e.took, e.stopped = said.last(), time.Since(began), ctx.Err() != nil && e.exit != 0
	return e, nil
}

// behindDash wants the command behind --, after so many arguments: its flags are not tally's.
func behindDash(cmd *cobra.Command, args int) error {
	if cmd.ArgsLenAtDash() != args {
		return cli.Usagef("want %s: the command stands behind --", cmd.Use)
	}
	return nil
}

// check says why a command cannot be started, before anything is taken for it.
func check(command []string) error {
	if _, err := exec.LookPath(command[0]); err != nil && !errors.Is(err, exec.ErrDot) {
		return notStarted(command[0], err)
	}
	return nil
}

// notStarted is the error of a command that could not be started, with a shell's exit code.
func notStarted(name string, err error) error {
	code, reason := notExecutable, err
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code, reason = notFound, errors.New("command not found")
	} else if path, ok := errors.AsType[*fs.PathError](err); ok {
		reason = path.Err
	} else if bad, ok := errors.AsType[*exec.Error](err); ok {
		reason = bad.Err
	}
	return &cli.CodeError{Code: code, Err: fmt.Errorf("%s: %w", name, reason)}
}

// variable is an entry of an environment. What none can have, a zero byte, is escaped, as
// ids are where they are not text.
func variable(name, value string) string {
	if strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
		value = events.EscapeID(value)
	}
	return name + "=" + value
}

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	most int // bytes that are kept at least

	mu  sync.Mutex
	buf []byte
}

// maxTail is how much of what a child says is looked at for its last line.
const maxTail = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(0, len(p)-t.most):]...)
	if len(t.buf) > 2*t.most {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-t.most:]...)
	}
	return len(p), nil
}

// last returns the last line that has something.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.buf), "\ufffd"))
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// bounded keeps what is written to it up to a size, and how much it was.
type bounded struct {
	most int
	buf  []byte
	size int64
}

// Write implements io.Writer. It takes everything, so that no child hangs or breaks.
func (b *bounded) Write(p []byte) (int, error) {
	b.size += int64(len(p))
	b.buf = append(b.buf, p[:min(len(p), b.most-len(b.buf))]...)
	return len(p), nil
}

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

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
)

// A child is the command that was named, run for one message or item: what that says is its
// input and its environment, and never a part of the command.
type child struct {
	command []string
	env     []variable // beside that of this process
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
// could not be started: an *unstartedError if that lies in the message or item and not in
// the command.
func (c child) run(ctx context.Context) (ended, error) {
	env, err := environment(c.env)
	if err != nil {
		return ended{}, err
	}
	began, said := time.Now(), &tail{most: maxTail}
	cmd := exec.CommandContext(ctx, c.command[0], c.command[1:]...)
	if errors.Is(cmd.Err, exec.ErrDot) {
		cmd.Err = nil // whoever has the working directory in PATH means it
	}
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.stdin), c.stdout, io.MultiWriter(c.stderr, said)
	cmd.WaitDelay = inTime // also for what it has left behind and that holds its output
	apart(cmd)
	if err := cmd.Start(); err != nil {
		if unusable := check(c.command); unusable != nil {
			return ended{}, unusable
		}
		return ended{}, &unstartedError{reason: notStarted(c.command[0], err).Error()}
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

// unstartedError says that the command cannot be started for one message or item. It is an
// attempt that failed: another one need not fail, unless it is final.
type unstartedError struct {
	reason string
	final  bool
}

func (e *unstartedError) Error() string { return e.reason }

// variable is an entry of an environment.
type variable struct{ name, value string }

// maxVariable bounds a value in an environment: a name of events.MaxIDLen bytes, each of them
// escaped. A system starts no program with values that are much longer.
const maxVariable = 3 * events.MaxIDLen

// environment writes variables as a process gets them. One beyond the bound is a final
// *unstartedError.
func environment(list []variable) ([]string, error) {
	env := make([]string, len(list))
	for i, v := range list {
		text := v.String()
		if n := len(text) - len(v.name+"="); n > maxVariable {
			return nil, &unstartedError{fmt.Sprintf("%s has %d bytes, and a command gets at most %d", v.name, n, maxVariable), true}
		}
		env[i] = text
	}
	return env, nil
}

// String returns the entry. A value with a zero byte, or that is not text, is escaped as ids are.
func (v variable) String() string {
	if strings.ContainsRune(v.value, 0) || !utf8.ValidString(v.value) {
		return v.name + "=" + events.EscapeID(v.value)
	}
	return v.name + "=" + v.value
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

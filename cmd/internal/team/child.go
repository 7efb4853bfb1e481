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

// A child is the user's command, run for one message or item. The message or item reaches it as standard input and
// environment, never as a part of the command line.
type child struct {
	command []string
	env     []variable // in addition to the environment of this process
	stdin   []byte
	stdout  io.Writer
	stderr  io.Writer
}

// ended is the end of a child.
type ended struct {
	exit    int    // with a signal: 128 plus its number
	signal  string // signal that ended it, or ""
	stopped bool   // this process told it to end
	said    string // last line on its standard error
	took    time.Duration
}

// ok reports whether the child exited with code 0.
func (e ended) ok() bool { return e.exit == 0 }

// reason returns why it failed.
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

// Exit codes of shells for commands that cannot be run.
const (
	notExecutable = 126
	notFound      = 127
	bySignal      = 128 // plus the signal's number
)

// inTime is the time that a child and its processes have to end after a request. Then they are killed.
const inTime = 5 * time.Second

// run runs the child to its end. When ctx is done, the child is told to end. If the command could not be started, run
// returns an error: an *unstartedError if the cause is the message or item and not the command.
func (c child) run(ctx context.Context) (ended, error) {
	env, err := environment(c.env)
	if err != nil {
		return ended{}, err
	}
	began, said := time.Now(), &tail{most: maxTail}
	cmd := exec.CommandContext(ctx, c.command[0], c.command[1:]...)
	if errors.Is(cmd.Err, exec.ErrDot) {
		cmd.Err = nil // the user has the working directory in PATH on purpose
	}
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.stdin), c.stdout, io.MultiWriter(c.stderr, said)
	cmd.WaitDelay = inTime // also for its processes that still hold its output
	apart(cmd)
	if err := cmd.Start(); err != nil {
		if unusable := check(c.command); unusable != nil {
			return ended{}, unusable
		}
		return ended{}, &unstartedError{reason: notStarted(c.command[0], err).Error()}
	}
	_ = cmd.Wait() // the process state has the end; unread input is not an error
	if ctx.Err() != nil {
		killRest(cmd)
	}
	e := endOf(cmd.ProcessState)
	e.said, e.took, e.stopped = said.last(), time.Since(began), ctx.Err() != nil && e.exit != 0
	return e, nil
}

// checkDash returns an error unless a command follows -- after one argument. tally does not parse the flags of that
// command.
func checkDash(cmd *cobra.Command) error {
	if cmd.ArgsLenAtDash() != 1 {
		return cli.Usagef("want %s: the command is after --", cmd.Use)
	}
	return nil
}

// check returns an error if a command cannot be started, before anything is claimed for it.
func check(command []string) error {
	if _, err := exec.LookPath(command[0]); err != nil && !errors.Is(err, exec.ErrDot) {
		return notStarted(command[0], err)
	}
	return nil
}

// notStarted returns the error for a command that could not be started, with a shell's exit code.
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

// unstartedError reports that the command cannot be started for one message or item. It counts as a failed attempt. If
// final is set, later attempts would fail too.
type unstartedError struct {
	reason string
	final  bool
}

func (e *unstartedError) Error() string { return e.reason }

// variable is an entry of an environment.
type variable struct{ name, value string }

// maxVariable is the maximum length of a value in an environment: an escaped name of events.MaxIDLen bytes. Systems
// start no program with values that are much longer.
const maxVariable = 3 * events.MaxIDLen

// environment returns the entries for a process. A value that is too long is a final *unstartedError.
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

// String returns the entry. A value that has a zero byte or is not text is escaped like an id.
func (v variable) String() string {
	if strings.ContainsRune(v.value, 0) || !utf8.ValidString(v.value) {
		return v.name + "=" + events.EscapeID(v.value)
	}
	return v.name + "=" + v.value
}

// tail is a writer that keeps the last bytes. It is safe for concurrent use.
type tail struct {
	most int // minimum number of kept bytes

	mu  sync.Mutex
	buf []byte
}

// maxTail is the number of bytes of standard error that are searched for the last line.
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

// last returns the last line that is not empty.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.buf), "\ufffd"))
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// bounded is a writer that keeps the first bytes, and counts all.
type bounded struct {
	most int
	buf  []byte
	size int64
}

// Write implements io.Writer. It accepts all input, so that no child blocks or fails.
func (b *bounded) Write(p []byte) (int, error) {
	b.size += int64(len(p))
	b.buf = append(b.buf, p[:min(len(p), b.most-len(b.buf))]...)
	return len(p), nil
}

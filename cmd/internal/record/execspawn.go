package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/internal/agents/stream"
)

// Exit codes of shells for commands that cannot be run.
const (
	notExecutable = 126
	notFound      = 127
	bySignal      = 128 // plus the signal's number
)

// spawn runs a command to its end. The tape gets a copy of its output, and with the format acp of its input. It returns
// an error if the command could not be started.
func (x *executor) spawn(command []string, t *tape) (stream.Ending, error) {
	c := exec.Command(command[0], command[1:]...)
	if errors.Is(c.Err, exec.ErrDot) {
		c.Err = nil // the user has the working directory in PATH on purpose
	}
	c.Stdin, c.Stderr = x.app.In, x.app.Err
	screen := x.app.Out
	if f := cli.Terminal(screen); f != nil {
		screen = f // the bytes pass unchanged
	}
	out, in, err := x.pipes(c)
	if err != nil {
		return stream.Ending{}, err
	}
	pass := takeSignals()
	err = c.Start()
	closeAll(c.Stdout, in.theirs)
	if err != nil {
		closeAll(out, in.ours)
		return stream.Ending{}, notStarted(command[0], err)
	}
	go pass.to(c.Process)
	if in.ours != nil {
		go in.pump(x.app.In, t)
	}
	copied := make(chan struct{})
	go func() { defer close(copied); pump(out, screen, t) }()
	_ = c.Wait() // the process state has the end
	pass.stop()
	_ = out.SetReadDeadline(time.Now().Add(x.linger)) // without deadlines, the output is read to its end
	<-copied
	return endingOf(c.ProcessState), nil
}

// input is a pipe to the command with recorded input.
type input struct{ ours, theirs *os.File }

// pipes connects the command's output to a pipe, and with the format acp its input.
func (x *executor) pipes(c *exec.Cmd) (out *os.File, in input, err error) {
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, in, err
	}
	c.Stdout = theirs
	if x.format != acpFormat {
		return out, in, nil
	}
	if in.theirs, in.ours, err = os.Pipe(); err != nil {
		closeAll(out, theirs)
		return nil, in, err
	}
	c.Stdin = in.theirs
	return out, in, nil
}

func closeAll(list ...any) {
	for _, f := range list {
		if f, ok := f.(*os.File); ok && f != nil {
			f.Close()
		}
	}
}

// pump passes the output of the command on. If the reader is gone, the command gets an error from its pipe, as without
// tally.
func pump(from *os.File, to io.Writer, t *tape) {
	defer from.Close()
	relay(from, to, t, false)
}

// pump passes the input on, and its end.
func (in input) pump(from io.Reader, t *tape) {
	defer in.ours.Close()
	relay(from, in.ours, t, true)
}

// relay copies until the end of input or the first write error. The tape gets a piece before it is passed on, so that an
// answer is recorded after its question.
func relay(from io.Reader, to io.Writer, t *tape, toAgent bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			t.add(toAgent, buf[:n])
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// notStarted returns the error for a command that could not be started, with a shell's exit code.
func notStarted(name string, err error) error {
	code, reason := notExecutable, err
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code, reason = notFound, errors.New("command not found")
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok && code == notExecutable {
		reason = path.Err
	}
	return &cli.CodeError{Code: code, Err: fmt.Errorf("%s: %w", name, reason)}
}

// endingOf returns how a process ended.
func endingOf(s *os.ProcessState) stream.Ending {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return stream.Ending{Exit: bySignal + int(w.Signal()), Signal: w.Signal().String()}
	}
	return stream.Ending{Exit: s.ExitCode()}
}

// signals are passed on to a command.
type signals struct {
	come chan os.Signal
	done chan struct{}
}

// takeSignals takes over the signals that are meant for the command.
func takeSignals() signals {
	s := signals{make(chan os.Signal, 16), make(chan struct{})}
	signal.Reset(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	for _, sig := range passed {
		if !signal.Ignored(sig) {
			signal.Notify(s.come, sig)
		}
	}
	return s
}

// to passes signals on to a process. Signals of the terminal reach the process anyway, as it is in the same group.
func (s signals) to(p *os.Process) {
	tty := cli.HasTerminal()
	for {
		select {
		case sig := <-s.come:
			if !tty || !slices.Contains(typed, sig) {
				_ = p.Signal(sig) // the process may be gone
			}
		case <-s.done:
			return
		}
	}
}

func (s signals) stop() { close(s.done) }

// notified returns a context that a signal to stop ends.
func notified(ctx context.Context) (context.Context, context.CancelFunc) {
	stops := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		stops = append(stops, syscall.SIGHUP)
	}
	return signal.NotifyContext(ctx, stops...)
}

// tape holds pieces that are not recorded yet. It is safe for concurrent use.
type tape struct {
	mu     sync.Mutex
	pieces []piece
	size   int
	over   bool // no more pieces are added
	lost   bool // no more pieces are read
	moved  time.Time
	more   *sync.Cond // a piece was added or read
}

// piece is the data of one read.
type piece struct {
	toAgent bool
	bytes   []byte
}

// Limits of a tape: its size, and how long add waits when it is full and nothing is read.
const (
	maxTape = 64 << 20
	stuck   = time.Second
)

func newTape() *tape {
	t := &tape{}
	t.more = sync.NewCond(&t.mu)
	return t
}

// add adds a copy of a piece.
func (t *tape) add(toAgent bool, b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.size > maxTape && !t.lost {
		t.makeRoom()
	}
	if t.lost || t.over {
		return
	}
	t.size += len(b)
	if last := len(t.pieces) - 1; last >= 0 && t.pieces[last].toAgent == toAgent && len(t.pieces[last].bytes) < 1<<20 {
		t.pieces[last].bytes = append(t.pieces[last].bytes, b...)
	} else {
		t.pieces = append(t.pieces, piece{toAgent, slices.Clone(b)})
	}
	t.more.Broadcast()
}

// makeRoom waits until pieces were read. The caller holds mu.
func (t *tape) makeRoom() {
	for t.size > maxTape && !t.lost {
		timer := time.AfterFunc(stuck, t.more.Broadcast)
		before := t.moved
		t.more.Wait()
		if !timer.Stop() && t.moved.Equal(before) && t.size > maxTape {
			t.lost = true
		}
	}
}

// take waits for pieces. It returns false at the end.
func (t *tape) take() ([]piece, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.pieces) == 0 && !t.over {
		t.more.Wait()
	}
	list := t.pieces
	t.pieces, t.size, t.moved = nil, 0, time.Now()
	t.more.Broadcast()
	return list, len(list) > 0 || !t.over
}

// close ends the tape for writers.
func (t *tape) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.more.Broadcast()
}

// drop ends the tape for readers: add no longer waits.
func (t *tape) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost, t.pieces, t.size = true, nil, 0
	t.more.Broadcast()
}

// isLost reports whether pieces were dropped.
func (t *tape) isLost() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}

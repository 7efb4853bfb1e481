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

// Exit codes of what cannot be run, as shells have them.
const (
	notExecutable = 126
	notFound      = 127
	bySignal      = 128 // and the signal's number
)

// spawn runs a command to its end. The tape gets a copy of what it prints, and with format
// acp of what it is told. An error says that it could not be started.
func (x *executor) spawn(command []string, t *tape) (stream.Ending, error) {
	c := exec.Command(command[0], command[1:]...)
	if errors.Is(c.Err, exec.ErrDot) {
		c.Err = nil // whoever has the working directory in PATH means it
	}
	c.Stdin, c.Stderr = x.app.In, x.app.Err
	screen := x.app.Out
	if f := cli.Terminal(screen); f != nil {
		screen = f // bytes pass as they are
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
	_ = c.Wait() // its end is in the state, and nothing else is waited for
	pass.stop()
	_ = out.SetReadDeadline(time.Now().Add(x.linger)) // where the system cannot, it is waited for to the end
	<-copied
	return endingOf(c.ProcessState), nil
}

// input is a pipe to the command, where what it is told is recorded.
type input struct{ ours, theirs *os.File }

// pipes gives the command a pipe for its output, and with format acp for its input.
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

// pump passes on what the command prints, as it comes. When nobody reads it any more, the
// command is told so by its pipe, as it would be without tally.
func pump(from *os.File, to io.Writer, t *tape) {
	defer from.Close()
	pass(from, to, t, false)
}

// pump passes on what the command is told. The end of it is passed on too.
func (in input) pump(from io.Reader, t *tape) {
	defer in.ours.Close()
	pass(from, in.ours, t, true)
}

// pass copies until there is no more, or nobody takes it. The tape has a piece before it is
// passed on, so that no answer stands before what it answers.
func pass(from io.Reader, to io.Writer, t *tape, toAgent bool) {
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

// notStarted is the error of a command that could not be started, with a shell's exit code.
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

// endingOf says how a process ended.
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

// takeSignals takes the signals that are the command's from whoever had them.
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

// to passes signals on to a process. What the terminal sends goes to it anyway, because it is
// of the same group.
func (s signals) to(p *os.Process) {
	tty := cli.HasTerminal()
	for {
		select {
		case sig := <-s.come:
			if !tty || !slices.Contains(typed, sig) {
				_ = p.Signal(sig) // it may be gone
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

// tape holds what came and was not recorded yet. It is safe for concurrent use.
type tape struct {
	mu     sync.Mutex
	pieces []piece
	size   int
	over   bool // nothing more comes
	lost   bool // what comes is not taken any more
	moved  time.Time
	more   *sync.Cond // something came, or went
}

// piece is what came at once.
type piece struct {
	toAgent bool
	bytes   []byte
}

// A tape holds so much. If more comes, who brings it waits, as at a pipe, but no longer than
// stuck if nothing is taken away.
const (
	maxTape = 64 << 20
	stuck   = time.Second
)

func newTape() *tape {
	t := &tape{}
	t.more = sync.NewCond(&t.mu)
	return t
}

// add adds a copy of what came.
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

// makeRoom waits until something was taken away. The caller holds mu.
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

// take waits for what came; false if nothing more comes.
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

// close says that nothing more comes.
func (t *tape) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.more.Broadcast()
}

// drop says that nothing is taken any more, so that nobody waits for that.
func (t *tape) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost, t.pieces, t.size = true, nil, 0
	t.more.Broadcast()
}

// isLost reports whether something was not taken.
func (t *tape) isLost() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}

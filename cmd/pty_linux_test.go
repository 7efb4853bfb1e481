package cmd_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A terminal of a test. Its output is unchanged, and typed keys are not echoed.
type terminal struct {
	t     *testing.T
	keys  *os.File // writing to it types keys
	slave *os.File

	mu      sync.Mutex
	screen  bytes.Buffer
	printed chan struct{} // gets a value when more is printed, unless one is waiting
	done    chan struct{}
}

func newTerminal(t *testing.T, columns, lines int) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	mode, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	mode.Oflag &^= unix.OPOST
	mode.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, mode); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(lines)}); err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, keys: master, slave: slave, printed: make(chan struct{}, 1), done: make(chan struct{})}
	t.Cleanup(func() { master.Close() })
	go term.read()
	return term
}

// read reads the screen until no process has the terminal open.
func (term *terminal) read() {
	defer close(term.done)
	buf := make([]byte, 1<<16)
	for {
		n, err := term.keys.Read(buf)
		term.mu.Lock()
		term.screen.Write(buf[:n])
		term.mu.Unlock()
		select {
		case term.printed <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// run starts a command on the terminal, in a session of its own.
func (term *terminal) run(c *exec.Cmd) {
	term.t.Helper()
	if c.Stdin == nil {
		c.Stdin = term.slave
	}
	c.Stdout, c.Stderr = term.slave, term.slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
	if err := c.Start(); err != nil {
		term.t.Fatal(err)
	}
	term.slave.Close()
}

// await waits until a text is on the screen, or no process has the terminal open.
func (term *terminal) await(text string) {
	term.t.Helper()
	late := time.After(2 * time.Minute)
	for {
		if bytes.Contains([]byte(term.text()), []byte(text)) {
			return
		}
		select {
		case <-term.printed:
		case <-late:
			term.t.Fatalf("timeout: no %q on the screen:\n%q", text, term.text())
		case <-term.done:
			if !bytes.Contains([]byte(term.text()), []byte(text)) {
				term.t.Fatalf("no %q on the screen:\n%s", text, term.text())
			}
			return
		}
	}
}

// insist types keys until a text is on the screen: a program may drop keys that are typed during an interrupt.
func (term *terminal) insist(keys, text string) {
	term.t.Helper()
	for range 200 {
		if strings.Contains(term.text(), text) {
			return
		}
		term.press(keys)
		select {
		case <-term.done:
			term.t.Fatalf("no %q on the screen:\n%q", text, term.text())
		case <-time.After(50 * time.Millisecond):
		}
	}
	term.t.Fatalf("timeout: no %q on the screen:\n%q", text, term.text())
}

// text returns the output so far.
func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.String()
}

// press types keys on the terminal.
func (term *terminal) press(keys string) {
	term.t.Helper()
	if _, err := io.WriteString(term.keys, keys); err != nil {
		term.t.Fatal(err)
	}
}

// end waits for a command, and returns its whole output and its exit code.
func (term *terminal) end(c *exec.Cmd) (string, int) {
	term.t.Helper()
	err := c.Wait()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		term.t.Fatal(err)
	}
	<-term.done
	return term.text(), c.ProcessState.ExitCode()
}

// onTerminal runs a command on a terminal.
func onTerminal(t *testing.T, columns, lines int, c *exec.Cmd) (string, int) {
	t.Helper()
	term := newTerminal(t, columns, lines)
	term.run(c)
	return term.end(c)
}

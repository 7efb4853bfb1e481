package cmdutil

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"

	"github.com/tallylog/tally/cmd/internal/cli"
)

// pagerCommand returns the command line of the user's pager: TALLY_PAGER, PAGER, or less. It returns nil if paging is
// switched off or the pager is not installed.
func pagerCommand(lookup func(string) (string, bool)) []string {
	text := "less"
	if term, _ := lookup("TERM"); term == "dumb" {
		text = ""
	}
	for _, name := range []string{"PAGER", "TALLY_PAGER"} {
		if value, set := lookup(name); set {
			text = strings.TrimSpace(value)
		}
	}
	command := strings.Fields(text)
	switch {
	case text == "" || text == "cat":
		return nil
	case strings.ContainsAny(text, "|&;<>()$`\\\"'*?[#~=%"):
		command = []string{"sh", "-c", text}
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		return nil
	}
	return command
}

// maxHeld is the amount of output that is kept in memory while the pager shows the beginning. The command can then
// close the store while the user reads.
const maxHeld = 64 << 20

// pager writes to a terminal. When a screen is full, it starts a program that shows a screen at a time.
type pager struct {
	terminal *os.File
	command  []string
	room     int // lines left on the terminal
	done     chan struct{}

	mu     sync.Mutex // guards the fields below
	moved  *sync.Cond
	held   bytes.Buffer // not written yet
	begun  bool         // there was output
	paging bool         // the program runs
	plain  bool         // the program could not be started
	closed bool
	err    error // error of a write
}

func newPager(terminal *os.File, command []string, height int) *pager {
	p := &pager{terminal: terminal, command: command, room: height - 1, done: make(chan struct{})}
	p.moved = sync.NewCond(&p.mu)
	return p
}

// Terminal implements cli.Screen.
func (p *pager) Terminal() *os.File { return p.terminal }

// Write implements io.Writer. If the user has left the program, it returns EPIPE.
func (p *pager) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.paging && p.held.Len() > maxHeld && p.err == nil {
		p.moved.Wait()
	}
	switch {
	case p.err != nil:
		return 0, p.err
	case p.plain:
		return p.terminal.Write(b)
	}
	p.begun = true
	p.held.Write(b)
	if p.room -= bytes.Count(b, []byte("\n")); p.room < 0 && !p.paging {
		return len(b), p.start()
	}
	p.moved.Broadcast()
	return len(b), nil
}

// start runs the program. The caller holds mu.
func (p *pager) start() error {
	c := exec.Command(p.command[0], p.command[1:]...)
	c.Stdout, c.Stderr = p.terminal, os.Stderr
	c.Env = os.Environ()
	for _, e := range []struct{ name, value string }{{"LESS", "FRX"}, {"LV", "-c"}} {
		if _, set := os.LookupEnv(e.name); !set {
			c.Env = append(c.Env, e.name+"="+e.value)
		}
	}
	pipe, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		p.plain = true
		_, err := p.held.WriteTo(p.terminal)
		return err
	}
	signal.Ignore(os.Interrupt) // an interrupt is for the pager, which continues
	p.paging = true
	go p.feed(c, pipe)
	return nil
}

// feed writes the held output to the program until Close, and waits for the program's end.
func (p *pager) feed(c *exec.Cmd, pipe io.WriteCloser) {
	defer close(p.done)
	for {
		p.mu.Lock()
		for p.held.Len() == 0 && !p.closed {
			p.moved.Wait()
		}
		next := p.held.Bytes()
		p.held = bytes.Buffer{}
		p.moved.Broadcast()
		p.mu.Unlock()
		if len(next) == 0 {
			break
		}
		if _, err := pipe.Write(next); err != nil {
			p.mu.Lock()
			p.err = err
			p.moved.Broadcast()
			p.mu.Unlock()
			break
		}
	}
	pipe.Close()
	_ = c.Wait() // the exit code of the pager does not matter
}

// Close prints the held output, or waits until the user leaves the program.
func (p *pager) Close() error {
	p.mu.Lock()
	p.closed = true
	paging := p.paging
	p.moved.Broadcast()
	var err error
	if !paging {
		_, err = p.held.WriteTo(p.terminal)
	}
	p.mu.Unlock()
	if paging {
		<-p.done
	}
	return err
}

// messages is standard error on the same terminal. Its text is written after the results before it, so that the two do
// not mix on the pager's screen.
type messages struct {
	pager *pager
	to    io.Writer
}

func (m messages) Write(b []byte) (int, error) {
	m.pager.mu.Lock()
	begun := m.pager.begun
	m.pager.mu.Unlock()
	if begun {
		return m.pager.Write(b)
	}
	return m.to.Write(b)
}

// Terminal implements cli.Screen.
func (m messages) Terminal() *os.File { return cli.Terminal(m.to) }

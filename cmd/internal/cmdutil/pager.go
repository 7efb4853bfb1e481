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

// pagerCommand returns how to run the user's pager: TALLY_PAGER, PAGER, or less. It is nil
// if there is to be none, or none is there.
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

// mostHeld is how much a pager that shows the beginning is waited for. So the store is
// closed while the user reads, unless there is very much to read.
const mostHeld = 64 << 20

// pager writes to a terminal, and once that is full to a program that shows a screen at a
// time.
type pager struct {
	terminal *os.File
	command  []string
	room     int // lines that are left on the terminal
	done     chan struct{}

	mu     sync.Mutex // guards what follows
	moved  *sync.Cond
	held   bytes.Buffer // not written yet
	begun  bool         // something was printed
	paging bool         // the program runs
	plain  bool         // it could not be run
	closed bool
	err    error // of writing
}

func newPager(terminal *os.File, command []string, height int) *pager {
	p := &pager{terminal: terminal, command: command, room: height - 1, done: make(chan struct{})}
	p.moved = sync.NewCond(&p.mu)
	return p
}

// Terminal implements cli.Screen.
func (p *pager) Terminal() *os.File { return p.terminal }

// Write implements io.Writer. If the user has left the program, that is EPIPE.
func (p *pager) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.paging && p.held.Len() > mostHeld && p.err == nil {
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
	signal.Ignore(os.Interrupt) // it is the pager's now, which goes on
	p.paging = true
	go p.feed(c, pipe)
	return nil
}

// feed gives the program what is held, until there will be no more, and waits for it.
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
	_ = c.Wait() // how it ended is the user's affair
}

// Close prints what is held, or waits until the user leaves the program.
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

// remarks are what goes to standard error where that is the terminal too: behind the
// results that were printed before, so that they do not cross the pager's screen.
type remarks struct {
	pager *pager
	to    io.Writer
}

func (r remarks) Write(b []byte) (int, error) {
	r.pager.mu.Lock()
	begun := r.pager.begun
	r.pager.mu.Unlock()
	if begun {
		return r.pager.Write(b)
	}
	return r.to.Write(b)
}

// Terminal implements cli.Screen.
func (r remarks) Terminal() *os.File { return cli.Terminal(r.to) }

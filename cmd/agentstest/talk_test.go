package agentstest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// A talker is a program that exchanges lines of JSON.
type talker struct {
	t    *testing.T
	name string
	in   io.WriteCloser
	out  *bufio.Reader
	said bytes.Buffer // standard error
	last int          // id of a request
	seen []message    // received, not yet returned by wait
	sent []string     // lines
	came []string     // lines that wait has returned
}

// message is a line of any of the programs.
type message struct {
	ID      json.RawMessage
	Method  string // in messages of an app-server and of ACP
	Type    string // in messages of pi
	Command string
	Success *bool
	Params  json.RawMessage
	Result  json.RawMessage
	Data    json.RawMessage
	Error   json.RawMessage
}

// talk starts a program. It ends with the test at the latest.
func (m *machine) talk(name string, args ...string) *talker {
	m.t.Helper()
	c := m.command(name, args...)
	w := &talker{t: m.t, name: name}
	in, err := c.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	c.Stderr = &w.said
	if err := c.Start(); err != nil {
		m.t.Fatal(err)
	}
	w.in, w.out = in, bufio.NewReader(out)
	m.t.Cleanup(func() {
		in.Close()
		_ = c.Process.Kill() // it may have ended already
		_ = c.Wait()
	})
	return w
}

// close closes the input of the program, which ends it, and waits for the end.
func (w *talker) close() {
	w.in.Close()
	rest, _ := io.ReadAll(w.out)
	for line := range strings.Lines(string(rest)) {
		w.came = append(w.came, strings.TrimSpace(line))
	}
}

func (w *talker) send(v any) {
	w.t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		w.sent = append(w.sent, string(b))
		_, err = w.in.Write(append(b, '\n'))
	}
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", w.name, err, w.said.String())
	}
}

// wait returns the first matching message, including those that arrived before.
func (w *talker) wait(what string, want func(message) bool) message {
	w.t.Helper()
	for i, m := range w.seen {
		if want(m) {
			w.seen = append(w.seen[:i], w.seen[i+1:]...)
			return m
		}
	}
	for {
		line, err := w.out.ReadBytes('\n')
		if err != nil {
			w.t.Fatalf("%s ended before %s: %v\n%s", w.name, what, err, w.said.String())
		}
		var m message
		if json.Unmarshal(line, &m) != nil {
			continue // a word for people
		}
		w.came = append(w.came, strings.TrimSpace(string(line)))
		if want(m) {
			return m
		}
		w.seen = append(w.seen, m)
	}
}

package embedded_test

import (
	"net"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/storedir"
)

// Answers accepts only the greeting of a server, and reads a bounded part of anything else.
func TestAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	url := "nats://" + l.Addr().String()
	heard := make(chan int, 1)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			n, err := 0, error(nil)
			for chunk := make([]byte, 1<<20); err == nil && n < 1<<28; {
				var more int
				more, err = conn.Write(chunk)
				n += more
			}
			conn.Close()
			heard <- n
		}
	}()
	if storedir.Answers(t.Context(), url) {
		t.Error("noise: got a greeting, want none")
	}
	if n := <-heard; n == 1<<28 {
		t.Errorf("read %d bytes of noise, want fewer", n)
	}
	l.Close()
	if storedir.Answers(t.Context(), url) {
		t.Error("an empty answer: got a greeting, want none")
	}
	s := mustStart(t, embedded.ServerOptions{Dir: t.TempDir()})
	if !storedir.Answers(t.Context(), s.URL()) {
		t.Error("a server's greeting was not recognised")
	}
}

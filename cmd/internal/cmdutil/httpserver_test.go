package cmdutil

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// A server refuses headers beyond its limit, closes connections that send none, and ends the contexts of its requests.
func TestHTTPServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	began := make(chan struct{})
	s := HTTPServer(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/lasting" {
			close(began)
			<-r.Context().Done()
		}
	}))
	if s.ReadHeaderTimeout != 5*time.Second || s.IdleTimeout != 2*time.Minute {
		t.Errorf("headers may take %v, and connections be idle for %v", s.ReadHeaderTimeout, s.IdleTimeout)
	}
	s.ReadHeaderTimeout = 50 * time.Millisecond
	go s.Serve(l) // runs until Close
	defer s.Close()
	ask := func(request string) (status string) {
		c, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testkit.Patience(time.Minute)))
		go io.WriteString(c, request) // the server may close before it has read all
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(line)
	}
	with := func(size int) string {
		return fmt.Sprintf("GET / HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", size))
	}
	for request, want := range map[string]string{
		with(31 << 10): "HTTP/1.1 200 OK", with(33 << 10): "HTTP/1.1 431 Request Header Fields Too Large", "": "EOF",
	} {
		if got := ask(request); got != want {
			t.Errorf("%.20s, %d bytes: got %q, want %q", request, len(request), got, want)
		}
	}
	lasting := make(chan string)
	go func() { lasting <- ask("GET /lasting HTTP/1.1\r\nHost: x\r\n\r\n") }()
	<-began
	end()
	if got := <-lasting; got != "HTTP/1.1 200 OK" {
		t.Errorf("the lasting answer: got %q", got)
	}
}

package api

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
)

// stream is a follower of a kit's server.
type stream struct {
	k      *kit
	host   string // of its server
	status int
	body   io.ReadCloser
	lines  *bufio.Reader
	stop   context.CancelFunc
}

// event is a server-sent event. At the end of the stream it is zero.
type event struct {
	at         events.Offset
	name, data string
}

// follow opens a stream over a connection.
func (k *kit) follow(token, path string, headers ...string) *stream {
	k.t.Helper()
	server := httptest.NewServer(k.server)
	k.t.Cleanup(server.Close)
	ctx, stop := context.WithCancel(k.t.Context())
	k.t.Cleanup(stop)
	r, err := http.NewRequestWithContext(ctx, "GET", server.URL+path, nil)
	if err != nil {
		k.t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("Authorization", "Bearer "+k.texts[token])
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { answer.Body.Close() })
	return &stream{k, server.Listener.Addr().String(), answer.StatusCode, answer.Body, bufio.NewReader(answer.Body), stop}
}

func (s *stream) close() { s.stop() }

// next returns the next event that is not a comment.
func (s *stream) next() (e event) {
	s.k.t.Helper()
	var data []string
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return event{}
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				s.k.t.Fatal(err)
			}
			e.at = events.Offset(n)
		case "event":
			e.name = value
		case "data":
			data = append(data, value)
		case "":
			if value == "" && e.name != "" {
				e.data = strings.Join(data, "\n")
				return e
			}
		}
	}
}

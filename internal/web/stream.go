package web

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
)

// Stream is an answer of server-sent events.
type Stream struct {
	call *Call

	mu sync.Mutex // guards writes
}

// WantsStream reports whether the client asks for server-sent events.
func (c *Call) WantsStream() bool {
	return c.Request.Method == http.MethodGet && strings.HasPrefix(c.Request.Header.Get("Accept"), "text/event-stream")
}

// After returns the offset behind which a follower goes on: the header Last-Event-ID, else the parameter after.
func (c *Call) After() (events.Offset, error) {
	text, err := c.Header("Last-Event-ID")
	if err != nil {
		return 0, err
	}
	if text != "" {
		return parseOffset("Last-Event-ID", text)
	}
	return c.Offset("after")
}

// Follow answers with a stream. follow sends events until its context ends, which is when the client leaves, the token
// is removed or has expired, the server stops, or the stream has lasted long enough. The client then comes again with
// the id of the last event. If follow returns an error, its problem is the last event of the stream.
func (c *Call) Follow(follow func(context.Context, *Stream) error) error {
	s := c.server
	select {
	case s.followers <- struct{}{}:
		defer func() { <-s.followers }()
	default:
		return &Problem{Code: "busy", Detail: "there are too many followers", RetryAfter: 5}
	}
	ctx, cancel := context.WithCancel(c.life)
	defer cancel()
	stream := &Stream{call: c}
	c.SetHeader("Content-Type", "text/event-stream")
	c.SetHeader("X-Accel-Buffering", "no")
	c.answer.status = http.StatusOK
	if !stream.write([]byte("retry: 250\n\n")) {
		return nil
	}
	ended := make(chan string, 1) // why the stream ends
	var ticking sync.WaitGroup
	ticking.Go(func() {
		reason := c.watch(ctx, stream)
		ended <- reason
		cancel()
	})
	err := follow(ctx, stream)
	cancel()
	ticking.Wait()
	switch reason := <-ended; {
	case reason != "":
		stream.write([]byte("event: end\ndata: {\"reason\":\"" + reason + "\"}\n\n"))
	case err != nil && c.life.Err() == nil:
		stream.problem(s.problemOf(err, true))
	}
	return nil
}

// watch pings the client until the stream ends, and returns why, or "" if ctx has ended.
func (c *Call) watch(ctx context.Context, stream *Stream) string {
	l := c.server.env.Limits
	ping, over := time.NewTicker(l.Ping), time.NewTimer(l.Stream)
	defer ping.Stop()
	defer over.Stop()
	expired, stopTimer := c.Token.expiry(c.server.env.Store.Now())
	defer stopTimer()
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-c.server.stop:
			return "stopping"
		case <-c.Token.gone:
			return "token"
		case <-expired:
			return "token"
		case <-over.C:
			return "time"
		case <-ping.C:
			if !stream.write([]byte(": ping\n\n")) {
				return ""
			}
		}
	}
}

// write sends bytes, and reports whether the client takes them in time.
func (s *Stream) write(b []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	control := s.call.control()
	control.SetWriteDeadline(time.Now().Add(s.call.server.env.Limits.Write))
	if _, err := s.call.answer.Write(b); err != nil {
		return false
	}
	return control.Flush() == nil
}

// Send sends an event with an offset as its id; 0: without an id. It reports whether the client takes it in time. Line
// breaks in data arrive as LF.
func (s *Stream) Send(at events.Offset, name string, data []byte) bool {
	var b bytes.Buffer
	if at != 0 {
		b.WriteString("id: " + at.String()[1:] + "\n")
	}
	b.WriteString("event: " + name + "\n")
	data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return s.write(b.Bytes())
}

// problem sends a problem as the last event.
func (s *Stream) problem(p *Problem) {
	body := &recorder{header: make(http.Header)}
	if p.Code == "internal" {
		p = &Problem{Code: p.Code}
	}
	p.write(body)
	s.Send(0, "error", bytes.TrimSpace(body.Bytes()))
}

// recorder keeps an answer.
type recorder struct {
	bytes.Buffer
	header http.Header
}

// Header implements http.ResponseWriter.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(int) {}

package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Call is a request that was admitted.
type Call struct {
	Request *http.Request
	Store   *tally.Store // of the token's namespace, for events of the token
	Token   *Token       // nil on public routes
	Body    []byte       // inflated

	server *Server
	answer *answer
	row    *Route
	values map[string]string // of the path
	query  url.Values
	origin string // an allowed origin other than the own one; "": none
	media  string // type of the body
	zipped bool
	read   bool  // the body was read to its end
	taken  int64 // bytes of the budget for bodies
	ctx    context.Context
	life   context.Context // until the client leaves
}

// Context ends when the answer takes too long. For a route that only reads, it also ends when the client leaves.
func (c *Call) Context() context.Context { return c.ctx }

// Path returns a segment of the path, unescaped once.
func (c *Call) Path(name string) string { return c.values[name] }

// Query returns a parameter, or "".
func (c *Call) Query(name string) string { return c.query.Get(name) }

// Media returns the media type of the body.
func (c *Call) Media() string { return c.media }

// Version returns the version of the program.
func (c *Call) Version() string { return c.server.env.Version }

// Int returns a parameter that is a number from least to most. If it is absent, Int returns def.
func (c *Call) Int(name string, def, least, most int) (int, error) {
	text := c.Query(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, invalid(name, "want a number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
	}
	return n, nil
}

// Offset returns a parameter that is an offset, such as @12 or 12, or 0.
func (c *Call) Offset(name string) (events.Offset, error) { return parseOffset(name, c.Query(name)) }

func parseOffset(name, text string) (events.Offset, error) {
	if text == "" {
		return 0, nil
	}
	at, err := events.ParseOffset(text)
	if err != nil || at > events.MaxOffset {
		return 0, invalid(name, "want an offset such as @12")
	}
	return at, nil
}

// Header returns the only value of a header, or "". A header that is there twice is refused.
func (c *Call) Header(name string) (string, error) {
	switch values := c.Request.Header.Values(name); len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", invalid(name, "the header is given twice")
}

// Match returns the revision that If-Match names, 0 for none, and whether If-None-Match says that nothing may exist.
func (c *Call) Match() (at events.Offset, create bool, err error) {
	have, err := c.Header("If-Match")
	none, err2 := c.Header("If-None-Match")
	if err := errors.Join(err, err2); err != nil {
		return 0, false, err
	}
	if have != "" && none != "" {
		return 0, false, invalid("If-Match", "want If-Match or If-None-Match, not both")
	}
	if none != "" && none != "*" {
		return 0, false, invalid("If-None-Match", "want *")
	}
	if have == "" {
		return 0, none == "*", nil
	}
	at, ok := parseETag(have)
	if !ok {
		return 0, false, invalid("If-Match", `want one entity tag such as "@12"`)
	}
	return at, false, nil
}

// maxKey bounds an Idempotency-Key, in bytes.
const maxKey = 255

// Key returns the Idempotency-Key, or "": visible characters of ASCII. A key in quotes is the text in them.
func (c *Call) Key() (string, error) {
	text, err := c.Header("Idempotency-Key")
	if err != nil || text == "" {
		return "", err
	}
	if len(text) > 2 && text[0] == '"' && text[len(text)-1] == '"' {
		text = text[1 : len(text)-1]
	}
	if len(text) > maxKey || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", invalid("Idempotency-Key", "want 1 to 255 visible characters of ASCII")
	}
	return text, nil
}

// SetHeader sets a header of the answer.
func (c *Call) SetHeader(name, value string) { c.answer.Header().Set(name, value) }

// Immutable lets the client keep the answer for an hour. It is for answers that name an offset: nothing but an erasure
// changes them.
func (c *Call) Immutable() { c.SetHeader("Cache-Control", "private, max-age=3600") }

// JSON answers with a value. A json.RawMessage in it keeps its bytes.
func (c *Call) JSON(status int, v any) error {
	b, err := rawjson.Marshal(v)
	if err != nil {
		return err
	}
	c.SetHeader("Content-Type", "application/json")
	return c.Bytes(status, append(b, '\n'))
}

// Text answers with a text.
func (c *Call) Text(text string) error {
	c.SetHeader("Content-Type", "text/plain; charset=utf-8")
	return c.Bytes(http.StatusOK, []byte(text))
}

// Bytes answers with bytes, whose type the caller has set.
func (c *Call) Bytes(status int, b []byte) error {
	c.SetHeader("Content-Length", strconv.Itoa(len(b)))
	c.control().SetWriteDeadline(time.Now().Add(c.server.env.Limits.Answer))
	c.answer.WriteHeader(status)
	c.answer.Write(b)
	return nil // the client may have left
}

func (c *Call) control() *http.ResponseController {
	return http.NewResponseController(c.answer.ResponseWriter)
}

// readBody reads and inflates the body.
func (c *Call) readBody() error {
	if c.row.Body == 0 {
		return nil
	}
	if c.server.bodies.isEmpty() {
		return busyNow("too many bytes of bodies are in memory")
	}
	c.control().SetReadDeadline(time.Now().Add(c.server.env.Limits.BodyTime))
	var src io.Reader = c.Request.Body
	if c.zipped {
		unzip, err := gzip.NewReader(src)
		if err != nil {
			return invalid("body", "it is not gzip")
		}
		src = unzip
	}
	var whole bytes.Buffer
	for {
		n, err := io.CopyN(&whole, src, bodyStep)
		if !c.server.bodies.take(n) {
			c.drop()
			return busyNow("too many bytes of bodies are in memory")
		}
		c.taken += n
		switch {
		case int64(whole.Len()) > c.row.Body:
			c.drop()
			return tooLarge(c.row.Body)
		case err == io.EOF:
			c.control().SetReadDeadline(time.Time{})
			c.Body, c.read = whole.Bytes(), true
			if len(c.Request.TransferEncoding) == 0 {
				c.answer.Header().Del("Connection")
			}
			// With a transfer encoding, the server has ignored a length: nothing that follows may count as a request.
			return nil
		case err != nil:
			c.drop()
			return invalid("body", "it could not be read to its end")
		}
	}
}

// drop returns what a body took.
func (c *Call) drop() {
	c.server.bodies.give(c.taken)
	c.taken = 0
}

// bodyStep is how many bytes of a body are read at a time.
const bodyStep = 64 << 10

// budget is a number of bytes that many requests share.
type budget struct {
	mu   sync.Mutex
	left int64
}

func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < n {
		return false
	}
	b.left -= n
	return true
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
}

func (b *budget) isEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left < bodyStep
}

// answer knows the status that was sent; 0: none yet.
type answer struct {
	http.ResponseWriter
	status int
	head   bool // the body is left out
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if a.head {
		return len(b), nil
	}
	return a.ResponseWriter.Write(b)
}

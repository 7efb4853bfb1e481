package web

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Problem is an answer to a request that failed, as RFC 9457 has it: its type is urn:tally:problem:CODE.
type Problem struct {
	Code       string // of problems
	Detail     string
	Members    []Member
	ETag       string // of the present state
	RetryAfter int    // seconds; 0: the header is left out
}

// Member is a fact about a problem.
type Member struct {
	Name  string
	Value any // a string, a number, an Offset, or what rawjson.Marshal takes
}

// Error implements error.
func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// problems has the titles of all problems, and the status of each that package log does not have: see [Problem.status].
var problems = map[string]struct {
	status int
	title  string
}{
	"unauthenticated":      {401, "The request has no valid token"},
	"forbidden":            {403, "The request is not allowed"},
	"notFound":             {404, "There is no such thing"},
	"method":               {405, "The path has no such method"},
	"exists":               {409, "It exists already"},
	"kind":                 {409, "Sessions of this kind cannot do that"},
	"gone":                 {410, "The content was removed"},
	"preconditionFailed":   {412, "It has moved on"},
	"unsupportedType":      {415, "The type of the body is not supported"},
	"misdirected":          {421, "The request is for another server"},
	"preconditionRequired": {428, "The request needs a condition"},
	"busy":                 {429, "There are too many followers"},

	"invalid":     {title: "The request is invalid"},
	"personal":    {title: "Personal settings stay on their machine"},
	"conflict":    {title: "Something else was written before"},
	"partial":     {title: "Some of the events are stored already"},
	"gap":         {title: "An event before it in its series is missing"},
	"outOfOrder":  {title: "The event is not the next one of its series"},
	"aborted":     {title: "An earlier append failed"},
	"type":        {title: "The type of the event is registered otherwise"},
	"moved":       {title: "The store was moved"},
	"tooLarge":    {title: "The request is too large"},
	"internal":    {title: "The server failed"},
	"damaged":     {title: "A record cannot be read"},
	"full":        {title: "The store has no room"},
	"unavailable": {title: "The store cannot answer now"},
	"unknown":     {title: "It may have been stored: send it again"},
	"quota":       {title: "It would exceed a limit"},
}

// status returns the status of the answer. The table of package log decides for its codes, and for unknown ones.
func (p *Problem) status() int {
	if row := problems[p.Code]; row.status != 0 {
		return row.status
	}
	return (&log.Failure{Code: p.Code}).Status()
}

func invalid(field, reason string) *Problem {
	return &Problem{Code: "invalid", Detail: field + ": " + reason, Members: []Member{{"field", field}, {"reason", reason}}}
}

func tooLarge(most int64) *Problem {
	return &Problem{Code: "tooLarge", Detail: "the body has too many bytes", Members: []Member{{"max", most}}}
}

// busyNow is the answer while a limit of the server is reached.
func busyNow(why string) *Problem {
	return &Problem{Code: "unavailable", Detail: why, RetryAfter: 1}
}

// problemOf returns the problem of an error. A write whose time is over may be stored.
func (s *Server) problemOf(err error, read bool) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	text := err.Error()
	if e, ok := errors.AsType[*tally.DocumentConflictError](err); ok {
		return &Problem{Code: "preconditionFailed", Detail: text, ETag: ETag(e.Have), Members: []Member{{"want", e.Base}, {"have", e.Have}, {"holder", e.Holder}}}
	}
	if e, ok := errors.AsType[*rawjson.SyntaxError](err); ok {
		return &Problem{Code: "invalid", Detail: text, Members: []Member{{"field", "body"}, {"offset", e.Offset}}}
	}
	if e, ok := errors.AsType[*rawjson.FieldError](err); ok {
		return invalid("body", e.Error())
	}
	if _, ok := errors.AsType[*tally.KindError](err); ok {
		return &Problem{Code: "kind", Detail: text}
	}
	if e, ok := errors.AsType[*projector.PositionError](err); ok {
		return &Problem{Code: "notFound", Detail: text, Members: []Member{{"position", e.Position}}}
	}
	if _, ok := errors.AsType[*events.ErasedError](err); ok {
		return &Problem{Code: "gone", Detail: text}
	}
	switch {
	case errors.Is(err, tally.ErrExists):
		return &Problem{Code: "exists", Detail: text}
	case errors.Is(err, tally.ErrNotFound):
		return &Problem{Code: "notFound", Detail: text}
	case errors.Is(err, projector.ErrNothingToUndo), errors.Is(err, projector.ErrNothingToRedo):
		return &Problem{Code: "conflict", Detail: text}
	case read && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		return busyNow("the answer took too long")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Problem{Code: "unknown", Detail: "no outcome is known yet"}
	}
	return failureOf(err)
}

// failureOf returns the problem of an error of the log. Its members are those of docs/wire.md.
func failureOf(err error) *Problem {
	f := log.FailureOf(err)
	p := &Problem{Code: f.Code, Detail: f.Message}
	raw, err := rawjson.Marshal(f)
	if err != nil {
		return p
	}
	members, err := rawjson.Object(raw)
	for _, m := range members {
		if m.Name == "type" {
			m.Name = "eventType" // the member type is that of the problem
		}
		if err == nil && m.Name != "code" && m.Name != "message" && m.Name != "namespace" {
			p.Members = append(p.Members, Member{m.Name, m.Value})
		}
	}
	return p
}

// fail answers a request that failed.
func (s *Server) fail(c *Call, err error) {
	if c.answer.status != 0 {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	p := s.problemOf(err, c.row == nil || !c.row.writes())
	if p.Code == "internal" {
		id := s.env.Store.Log.NewID()
		label := "none"
		if c.row != nil {
			label = c.row.Pattern
		}
		s.env.Logger.Error("a request failed", "route", label, "id", id, "error", err)
		p = &Problem{Code: p.Code, Detail: "the log of the server has the reason under this id", Members: []Member{{"instance", "urn:uuid:" + id}}}
	}
	if p.Code == "full" || p.Code == "unavailable" {
		p.RetryAfter = max(p.RetryAfter, 1)
	}
	c.control().SetWriteDeadline(time.Now().Add(s.env.Limits.Answer))
	p.write(c.answer)
}

// write sends the problem.
func (p *Problem) write(w http.ResponseWriter) {
	status := p.status()
	b := []byte(`{"type":`)
	b = rawjson.AppendString(b, "urn:tally:problem:"+p.Code)
	b = rawjson.AppendString(append(b, `,"title":`...), problems[p.Code].title)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(status), 10)
	if p.Detail != "" {
		b = rawjson.AppendString(append(b, `,"detail":`...), p.Detail)
	}
	for _, m := range p.Members {
		b = append(rawjson.AppendString(append(b, ','), m.Name), ':')
		if text, ok := m.Value.(string); ok {
			b = rawjson.AppendString(b, text)
		} else if more, err := rawjson.Append(b, m.Value); err == nil {
			b = more
		} else {
			b = append(b, "null"...)
		}
	}
	b = append(b, "}\n"...)
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Disposition")
	if p.ETag != "" {
		h.Set("ETag", p.ETag)
	} else {
		h.Del("ETag")
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	w.WriteHeader(status)
	w.Write(b)
}

// ETag returns the entity tag of a revision or of a head, "" for none.
func ETag(at events.Offset) string {
	if at == 0 {
		return ""
	}
	return `"` + at.String() + `"`
}

// parseETag reads what ETag returns.
func parseETag(text string) (events.Offset, bool) {
	inner, ok := strings.CutPrefix(text, `"@`)
	inner, ok2 := strings.CutSuffix(inner, `"`)
	if !ok || !ok2 {
		return 0, false
	}
	at, err := events.ParseOffset("@" + inner)
	return at, err == nil && at > 0
}

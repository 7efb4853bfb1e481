// Package web answers HTTP requests for a store. It checks each request in one place and in one order, and calls what a
// row of the table of routes does. The doors, such as package internal/web/api, supply the rows.
//
// A request names no namespace: its token does. No URL in a request is ever called, and no token, body, query or cookie
// is ever logged.
package web

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tallylog/tally"
)

// Env is what a handler serves, and to whom.
type Env struct {
	Store   *tally.Store
	Tokens  *Tokens
	Hosts   []string // values of the header Host that are accepted, in lower case, with the port if the clients send it
	Origins []string // origins of browsers that are accepted, such as https://example.org, besides the own one
	TLS     bool     // clients connect with TLS
	Version string   // of the program

	Metrics http.Handler                        // of /metrics; nil: there is no such route
	Count   func(route string, status, now int) // called after each answer; now is the number of followers; default: nothing
	Logger  *slog.Logger                        // default: discard
	Limits  Limits                              // zero fields have defaults
}

// Limits bounds what clients take from the process.
type Limits struct {
	Appends   int           // under way; default 256
	Bodies    int64         // bytes of bodies in memory; default 64 MiB
	Followers int           // default 2000
	BodyTime  time.Duration // to send a body; default 60 s
	Answer    time.Duration // to compute an answer and, again, to send it; default 30 s
	Write     time.Duration // of one write to a follower; default 10 s
	Ping      time.Duration // between signs of life to a follower; default 15 s
	Stream    time.Duration // after which a stream ends and the follower comes again; default 15 min
}

func (l Limits) orDefaults() Limits {
	ints := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	times := func(v *time.Duration, to time.Duration) {
		if *v == 0 {
			*v = to
		}
	}
	ints(&l.Appends, 256)
	ints(&l.Followers, 2000)
	if l.Bodies == 0 {
		l.Bodies = 64 << 20
	}
	times(&l.BodyTime, time.Minute)
	times(&l.Answer, 30*time.Second)
	times(&l.Write, 10*time.Second)
	times(&l.Ping, 15*time.Second)
	times(&l.Stream, 15*time.Minute)
	return l
}

// Server is the handler of a store.
type Server struct {
	env    Env
	routes []Route
	stop   chan struct{} // closed by Stop
	once   sync.Once

	appends   chan struct{} // one value for each append under way
	followers chan struct{} // one value for each follower
	bodies    budget        // bytes
}

// Handler returns a handler of the routes, besides those that every server has: /healthz, /readyz and /metrics. It
// panics if a route lacks a scope or is in the table twice: that is a mistake in the program.
func Handler(env Env, routes ...Route) *Server {
	if env.Logger == nil {
		env.Logger = slog.New(slog.DiscardHandler)
	}
	if env.Count == nil {
		env.Count = func(string, int, int) {}
	}
	env.Limits = env.Limits.orDefaults()
	s := &Server{env: env, stop: make(chan struct{}), bodies: budget{left: env.Limits.Bodies}}
	s.appends, s.followers = make(chan struct{}, env.Limits.Appends), make(chan struct{}, env.Limits.Followers)
	s.routes = slices.Concat(s.own(), routes)
	checkRoutes(s.routes)
	return s
}

// Stop ends all streams, and refuses requests from then on. Appends under way go on.
func (s *Server) Stop() { s.once.Do(func() { close(s.stop) }) }

func (s *Server) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// Routes returns the table.
func (s *Server) Routes() []Route { return slices.Clone(s.routes) }

// own returns the routes that every server has.
func (s *Server) own() []Route {
	list := []Route{
		{Method: "GET", Pattern: "/healthz", Scope: Public, Out: "", Do: func(c *Call) error { return c.Text("ok\n") }},
		{Method: "GET", Pattern: "/readyz", Scope: Public, Out: "", Wait: maxReady, Do: func(c *Call) error {
			err := s.env.Store.Log.Ready(c.Context())
			if err == nil {
				_, err = s.env.Store.Log.Durable(c.Context())
			}
			if err != nil {
				p := s.problemOf(err, true)
				return &Problem{Code: p.Code} // without details: everybody may ask
			}
			return c.Text("ready\n")
		}},
	}
	if s.env.Metrics != nil {
		list = append(list, Route{Method: "GET", Pattern: "/metrics", Scope: Metrics, Out: "", Do: func(c *Call) error {
			s.env.Metrics.ServeHTTP(c.answer, c.Request)
			return nil
		}})
	}
	return list
}

// maxReady bounds the time of an answer about readiness.
const maxReady = 2 * time.Second

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &answer{ResponseWriter: w, head: r.Method == http.MethodHead}
	label := "none" // of the metrics: never a path, which has ids
	read := false   // the body was read to its end
	defer func() {
		if !read && r.ContentLength != 0 {
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(maxDrain)) // net/http reads a part of the rest
		}
		if fault := recover(); fault != nil {
			s.recovered(a, label, fault)
		}
		s.env.Count(label, a.status, len(s.followers))
	}()
	c, err := s.admit(a, r)
	if c.row != nil {
		label = c.row.Pattern
	}
	if err == nil && c.row != nil {
		err = s.run(c)
		read = c.read
	}
	if err != nil {
		s.fail(c, err)
	}
}

// maxDrain bounds how long a client that was answered may go on sending its body.
const maxDrain = time.Second

// run calls what the row does, with the limits of the row.
func (s *Server) run(c *Call) error {
	ctx := c.Request.Context()
	if c.row.writes() {
		// An append that was sent goes on if the client leaves.
		ctx = context.WithoutCancel(ctx)
	}
	wait := c.row.Wait
	if wait == 0 {
		wait = s.env.Limits.Answer
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c.ctx, c.life = limited, c.Request.Context()
	if err := c.readBody(); err != nil {
		return err
	}
	defer s.bodies.give(c.taken)
	if c.row.writes() {
		select {
		case s.appends <- struct{}{}:
			defer func() { <-s.appends }()
		default:
			return busyNow("too many appends are under way")
		}
	}
	c.control().SetWriteDeadline(time.Now().Add(wait + s.env.Limits.Answer))
	return c.row.Do(c)
}

// recovered answers after a panic. The request is not logged.
func (s *Server) recovered(a *answer, label string, fault any) {
	if fault == http.ErrAbortHandler {
		panic(fault)
	}
	s.env.Logger.Error("a request failed", "route", label, "panic", fault, "stack", stack())
	if a.status != 0 {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	(&Problem{Code: "internal"}).write(a)
}

package acp

import (
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// Limits of the state of a connection.
const (
	maxPending  = 1024
	maxSessions = 1024
)

// fold is the state of a connection.
type fold struct {
	file     agents.File
	agent    string // name from its introduction
	version  string
	begun    map[string]bool    // sessions that have begun, by their ids in tally
	talks    map[string]*talk   // by the protocol's ids
	pending  map[string]request // by direction and message id
	prompted int                // prompts so far
}

// request is an unanswered request.
type request struct {
	method  string
	session string // the protocol's id
	cwd     string
}

// talk is the state of a session.
type talk struct {
	session string // the id in tally
	turn    *turn  // nil: no open prompt
	usd     amount
	title   string
}

func newFold(f agents.File) *fold {
	return &fold{file: f, agent: "agent", begun: make(map[string]bool), talks: make(map[string]*talk), pending: make(map[string]request)}
}

// Quiet implements agents.Fold. The protocol reports the end of a turn.
func (f *fold) Quiet() []agents.Fact { return nil }

// saying is a line while it is read.
type saying struct {
	agents.Meaning
	at  agents.Span
	cwd string // of the session that begins
}

func (s *saying) after(key string, p events.Payload) {
	s.After = append(s.After, agents.Fact{Key: key, Payload: p})
}

// Line implements agents.Fold.
func (f *fold) Line(at agents.Span, line []byte) agents.Meaning {
	s := &saying{Meaning: agents.Meaning{Thread: agents.Log}, at: at}
	if m, ok := saidIn(line); ok {
		if m.Text("method") != "" {
			f.asked(s, m)
		} else {
			f.answered(s, m)
		}
	}
	f.begin(s)
	return s.Meaning
}

// begin adds the session's beginning at its first line.
func (f *fold) begin(s *saying) {
	id := s.Session
	if id == "" {
		id = f.file.Session
	}
	if f.begun[id] || len(f.begun) > maxSessions {
		return
	}
	f.begun[id] = true
	p := &events.SessionCreated{Kind: events.KindTranscript, CWD: s.cwd, Project: agents.Project("", s.cwd), Settings: agents.Spell(settings{f.agent, f.version})}
	if s.Session == "" {
		p.Settings, p.Title = agents.Spell(settings{Agent: agentName}), connection
	}
	s.Before = append([]agents.Fact{{Key: "created", Payload: p}}, s.Before...)
}

type settings struct {
	Agent   string `json:"agent"`
	Version string `json:"version,omitempty"`
}

// in returns the state of a session and assigns the line to it. If the session can have no id in tally, in returns
// nil.
func (f *fold) in(s *saying, id string) *talk {
	t := f.talks[id]
	if t == nil {
		session := sessionOf(f.agent, id)
		if session == "" || len(f.talks) == maxSessions {
			return nil
		}
		t = &talk{session: session}
		f.talks[id] = t
	}
	s.Session = t.session
	return t
}

// asked reads a request or a notification.
func (f *fold) asked(s *saying, m said) {
	params := m.Object("params")
	method, id := m.Text("method"), params.Text("sessionId")
	f.await(m, request{method, id, params.Text("cwd")})
	s.cwd = params.Text("cwd")
	if id == "" {
		return
	}
	t := f.in(s, id)
	switch {
	case t == nil:
	case method == "session/prompt" && m.toAgent:
		f.prompt(s, t)
	case method == "session/update" && !m.toAgent:
		f.update(s, t, params)
	}
}

// await stores a request until it is answered.
func (f *fold) await(m said, r request) {
	if key := keyOf(m, m.toAgent); key != "" && len(f.pending) < maxPending {
		f.pending[key] = r
	}
}

// keyOf returns the key of a request: its direction and id; "" for a notification.
func keyOf(m said, toAgent bool) string {
	id := m.Compact("id")
	if id == "" || len(id) > 256 {
		return ""
	}
	return strconv.FormatBool(toAgent) + id
}

// answered reads an answer, which goes in the opposite direction of its request.
func (f *fold) answered(s *saying, m said) {
	key := keyOf(m, !m.toAgent)
	r, ok := f.pending[key]
	if !ok {
		return
	}
	delete(f.pending, key)
	result := m.Object("result")
	switch r.method {
	case "initialize":
		f.introduced(s, result)
	case "session/new", "session/fork":
		r.session = result.Text("sessionId")
	}
	s.cwd = r.cwd
	if r.session == "" {
		return
	}
	if t := f.in(s, r.session); t != nil && r.method == "session/prompt" {
		f.finish(s, t, m)
	}
}

// introduced reads the agent's name, once, because sessions are named after it.
func (f *fold) introduced(s *saying, result rawjson.Members) {
	info := result.Object("agentInfo")
	if id := info.Text("name"); token(id) && len(f.talks) == 0 {
		f.agent = id
		s.after("title", agents.Titled(connection+" to "+id))
	}
	f.version = info.Text("version")
}

// connection is the title of a connection's own session.
const connection = "Connection"

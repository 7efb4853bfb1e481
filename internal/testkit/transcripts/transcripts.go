// Package transcripts stores the lines of agents' files in a log, for tests: each line as an event, with the derived
// events before and after it.
package transcripts

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// T is the failing part of a test: testing's or rapid's.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Log is the log of one agent's files.
type Log struct {
	t       T
	agent   agents.Agent
	Records testkit.Records
	Lines   []agents.Meaning                   // of all files, in the order of their arrival
	ends    map[string]map[int64]events.Offset // by stem: the events of lines, by the offsets where the lines end
	first   map[string]events.Offset           // of each session
	files   map[string]*file
}

type file struct {
	agents.File
	fold agents.Fold
	at   int64
}

// New returns an empty log.
func New(t T, agent agents.Agent) *Log {
	return &Log{t: t, agent: agent, ends: make(map[string]map[int64]events.Offset), first: make(map[string]events.Offset), files: make(map[string]*file)}
}

// Append adds lines to a file. The first ones create it.
func (l *Log) Append(name string, content []byte) {
	l.t.Helper()
	f := l.files[name]
	if f == nil {
		first, _, _ := bytes.Cut(content, []byte("\n"))
		what, ok := l.agent.File(name, first)
		if !ok {
			l.t.Fatalf("%s is not a file of %s", name, l.agent.Name())
		}
		f = &file{File: what, fold: l.agent.Fold(what)}
		l.files[name] = f
		l.ends[f.Stem] = make(map[int64]events.Offset)
	}
	for line := range bytes.Lines(content) {
		span := agents.Span{Start: f.at, End: f.at + int64(len(line))}
		f.at = span.End
		l.line(f, span, bytes.TrimSuffix(line, []byte("\n")))
	}
}

func (l *Log) line(f *file, span agents.Span, line []byte) {
	m := f.fold.Line(span, line)
	l.Lines = append(l.Lines, m)
	session := f.Session
	if m.Session != "" {
		session = m.Session
	}
	keys := make(map[string]bool)
	l.facts(f, session, m.Before, keys)
	e := events.Entry{Thread: m.Thread, Turn: slices.Clone(rawjson.Trim(line)), ID: m.Turn}
	if rawjson.Check(line) != nil {
		e.Turn, e.Bytes = nil, slices.Clone(line)
	}
	l.ends[f.Stem][span.End] = l.add(session, &events.TurnAppended{Entries: []events.Entry{e}})
	l.facts(f, session, m.After, keys)
}

// Quiet stores the events that follow when no file grows any more.
func (l *Log) Quiet() {
	for _, f := range l.files {
		l.facts(f, f.Session, f.fold.Quiet(), make(map[string]bool))
	}
}

func (l *Log) facts(f *file, session string, facts []agents.Fact, keys map[string]bool) {
	l.t.Helper()
	for _, fact := range facts {
		if keys[fact.Key] {
			l.t.Fatalf("two facts of a line of %s have the key %s", f.Name, fact.Key)
		}
		keys[fact.Key] = true
		p := fact.Payload
		switch q := p.(type) {
		case *events.SessionCreated:
			if l.first[session] != 0 {
				continue
			}
			if q.CreatedAt == "" {
				q.CreatedAt = "2026-01-01T00:00:00Z"
			}
			l.first[session] = l.add(session, p)
			continue
		case *events.SessionRewound:
			q.To = l.offsetOf(f, session, *fact.Position)
		case *events.ThreadReplaced:
			for thread := range q.Threads {
				p = fact.Fit(len(l.Live(session, thread)))
			}
		}
		l.add(session, p)
	}
}

// offsetOf returns the offset of the event at a position.
func (l *Log) offsetOf(f *file, session string, p agents.Position) events.Offset {
	l.t.Helper()
	if p.End == 0 {
		return l.first[session]
	}
	at := l.ends[p.Stem][p.End]
	if at == 0 {
		l.t.Fatalf("%s: no line ends at %+v", f.Name, p)
	}
	return at
}

func (l *Log) add(session string, p events.Payload) events.Offset {
	l.t.Helper()
	e, err := events.New("urn:test", events.Session("default", session), p)
	if err != nil {
		l.t.Fatalf("%s: %v", p.EventType(), err)
	}
	at := events.Offset(len(l.Records) + 1)
	e.ID = fmt.Sprint(at)
	l.Records = append(l.Records, events.Record{Event: e, Offset: at})
	return at
}

// Session loads a session at head.
func (l *Log) Session(id string) *projector.Session {
	l.t.Helper()
	got, err := (&projector.Loader{Source: l.Records}).Session(context.Background(), events.Session("default", id), 0)
	if err != nil {
		l.t.Fatalf("%s: %v", id, err)
	}
	return got
}

// Live returns the turns in effect of a thread, none if the session does not exist.
func (l *Log) Live(session, thread string) []projector.Turn {
	l.t.Helper()
	if l.first[session] == 0 {
		return nil
	}
	return l.Session(session).Threads.Turns(thread)
}

// Payloads returns the payloads of one type in the order of the log.
func Payloads[P events.Payload](l *Log) []P {
	var list []P
	for _, rec := range l.Records {
		if p, ok := projector.Decode(rec).Payload.(P); ok {
			list = append(list, p)
		}
	}
	return list
}

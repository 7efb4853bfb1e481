package codex_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/codex"
	"github.com/tallylog/tally/internal/agents/message"
	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// stored is a home of Codex in a log: each line is an event, with its facts before and after it.
type stored struct {
	t       testing.TB
	records testkit.Records
	ends    map[string]map[int64]events.Offset // by stem: the events of lines, by the ends of the lines
	owner   map[string]string                  // by stem
	first   map[string]events.Offset           // by session; if it inherits records, the first inherited one
}

// store stores the files of a home in the order of their stems, in which Codex began them.
func store(t testing.TB, home map[string][]byte) *stored {
	t.Helper()
	s := &stored{t, nil, make(map[string]map[int64]events.Offset), make(map[string]string), make(map[string]events.Offset)}
	var files []agents.File
	for name := range home {
		f, ok := codex.Agent{}.File(name, nil)
		if !ok {
			t.Fatalf("%s is not a rollout", name)
		}
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b agents.File) int { return strings.Compare(a.Stem, b.Stem) })
	for _, f := range files {
		s.file(f, home[f.Name])
	}
	return s
}

func (s *stored) file(f agents.File, content []byte) {
	s.ends[f.Stem], s.owner[f.Stem] = make(map[int64]events.Offset), f.Session
	fold := codex.Agent{}.Fold(f)
	var at int64
	for line := range bytes.Lines(content) {
		span := agents.Span{Start: at, End: at + int64(len(line))}
		at = span.End
		line = bytes.TrimSuffix(line, []byte("\n"))
		m := fold.Line(span, line)
		keys := make(map[string]bool)
		s.facts(f, m.Before, keys)
		e := events.Entry{Thread: m.Thread, Turn: line, ID: m.Turn}
		if json.Valid(line) {
			e.Turn = bytes.TrimSpace(line)
		} else {
			e.Turn, e.Bytes = nil, line
		}
		s.ends[f.Stem][span.End] = s.add(f.Session, &events.TurnAppended{Entries: []events.Entry{e}})
		s.facts(f, m.After, keys)
	}
}

func (s *stored) facts(f agents.File, facts []agents.Fact, keys map[string]bool) {
	s.t.Helper()
	for _, fact := range facts {
		if keys[fact.Key] {
			s.t.Fatalf("two facts of a line of %s have the key %s", f.Name, fact.Key)
		}
		keys[fact.Key] = true
		switch p := fact.Payload.(type) {
		case *events.SessionCreated:
			if s.first[f.Session] != 0 {
				continue
			}
			if p.Fork != nil {
				p.Fork.Offset = s.offsetAt(f, *fact.Position)
				s.first[f.Session] = s.first[p.Fork.Session]
			}
			at := s.add(f.Session, p)
			if p.Fork == nil {
				s.first[f.Session] = at
			}
			continue
		case *events.SessionRewound:
			p.To = s.offsetAt(f, *fact.Position)
		}
		s.add(f.Session, fact.Payload)
	}
}

// offsetAt returns the event at a position.
func (s *stored) offsetAt(f agents.File, p agents.Position) events.Offset {
	s.t.Helper()
	if p.End == 0 {
		return s.first[f.Session]
	}
	at := s.ends[p.Stem][p.End]
	if at == 0 || p.Session != "" && p.Session != s.owner[p.Stem] {
		s.t.Fatalf("%s: no line ends at %+v", f.Name, p)
	}
	return at
}

func (s *stored) add(session string, p events.Payload) events.Offset {
	s.t.Helper()
	e, err := events.New("urn:test", events.Session("default", session), p)
	if err != nil {
		s.t.Fatalf("%s: %v", p.EventType(), err)
	}
	at := events.Offset(len(s.records) + 1)
	e.ID = fmt.Sprint(at)
	s.records = append(s.records, events.Record{Event: e, Offset: at})
	return at
}

// session loads a session as of an offset, 0 for the newest state.
func (s *stored) session(id string, at events.Offset) *projector.Session {
	s.t.Helper()
	got, err := (&projector.Loader{Source: s.records}).Session(context.Background(), events.Session("default", id), at)
	if err != nil {
		s.t.Fatalf("%s: %v", id, err)
	}
	return got
}

// main returns the screen of a session: the messages with their speakers, and calls of tools.
func (s *stored) main(session *projector.Session) []string {
	s.t.Helper()
	var list []string
	for _, turn := range session.Threads.Turns(agents.Main) {
		raw := turn.Raw
		if raw == nil { // torn, and written again after it
			raw = turn.Bytes[max(0, bytes.LastIndex(turn.Bytes, []byte(`{"timestamp":`))):]
		}
		read, ok := message.Read(raw)
		if !ok {
			s.t.Fatalf("%s is not a turn", raw)
		}
		for _, p := range read.Parts {
			switch {
			case p.Kind == shapes.Call:
				list = append(list, "call")
			case p.Kind == shapes.Said && p.Name == "compacted":
				list = append(list, "compacted")
			case p.Kind == shapes.Said:
				list = append(list, p.Role+": "+p.Text)
			}
		}
	}
	return list
}

// live returns the usage of the records in effect, including inherited ones.
func (s *stored) live(session *projector.Session) events.Tokens {
	var sum events.Tokens
	for _, rec := range s.records {
		if p, ok := projector.Decode(rec).Payload.(*events.CostAccrued); ok && session.History.IsLive(rec.Offset) {
			sum = plus(sum, *p.Tokens)
		}
	}
	return sum
}

func plus(a, b events.Tokens) events.Tokens {
	return events.Tokens{Input: a.Input + b.Input, Output: a.Output + b.Output, Reasoning: a.Reasoning + b.Reasoning, CacheRead: a.CacheRead + b.CacheRead, CacheWrite: a.CacheWrite + b.CacheWrite}
}

// sessions returns the ids of all sessions.
func (s *stored) sessions() []string {
	return slices.Compact(slices.Sorted(maps.Values(s.owner)))
}

// files returns the stems of a session's files, in order.
func (s *stored) files(session string) []string {
	var list []string
	for stem, owner := range s.owner {
		if owner == session {
			list = append(list, stem)
		}
	}
	slices.Sort(list)
	return list
}

// named returns the file of a home with a stem.
func named(t testing.TB, home map[string][]byte, stem string) []byte {
	t.Helper()
	for name, content := range home {
		if strings.Contains(path.Base(name), stem+".jsonl") {
			return content
		}
	}
	t.Fatalf("no file has the stem %s", stem)
	return nil
}

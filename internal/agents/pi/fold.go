package pi

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// fold is the state of a file.
type fold struct {
	file   agents.File
	name   named
	begun  bool   // the first line was read
	origin int64  // end of the first line
	leaf   string // the entry that was read last; "": none since the header
	ends   map[string]int64
	copied time.Time // older entries are copies of the parent's; zero: there are none
	title  string
	models agents.Models
	run    run
}

func newFold(f agents.File) *fold {
	n, _ := nameOf(f.Name)
	n.id = strings.TrimPrefix(f.Session, agentName+"/")
	return &fold{file: f, name: n, ends: make(map[string]int64)}
}

// Quiet implements agents.Fold. pi writes the end of a turn itself.
func (f *fold) Quiet() []agents.Fact { return nil }

// entry is a parsed line.
type entry struct {
	rawjson.Members
	kind    string
	id      string // "": none
	parent  string // "": none
	time    time.Time
	message rawjson.Members
}

func entryOf(m rawjson.Members) entry {
	e := entry{Members: m, kind: m.Text("type"), id: m.Text("id"), parent: m.Text("parentId"), message: m.Object("message")}
	e.time, _ = agents.ParseTime(m.Text("timestamp"))
	return e
}

// saying is an entry while it is read.
type saying struct {
	*agents.Meaning
	entry
	at  agents.Span
	key string // suffix of the keys of its facts
}

func (s *saying) after(key string, p events.Payload) {
	s.After = append(s.After, agents.Fact{Key: key + s.key, Time: s.time, Payload: p})
}

// Line implements agents.Fold. After half a line, the next one may follow on the same line.
func (f *fold) Line(at agents.Span, line []byte) agents.Meaning {
	m := agents.Meaning{Thread: agents.Log}
	list := agents.Values(line, isRecord)
	if !f.begun {
		f.begun = true
		f.origin = at.End
		first := entry{}
		if len(list) > 0 {
			first = entryOf(list[0].Members)
		}
		m.Before = append(m.Before, f.beginning(first))
	}
	for i, v := range list {
		s := &saying{Meaning: &m, entry: entryOf(v.Members), at: at}
		if i > 0 {
			s.key = "/" + strconv.Itoa(i)
		}
		f.record(s)
	}
	return m
}

func (f *fold) record(s *saying) {
	if !s.time.IsZero() {
		s.Time = s.time
	}
	switch s.kind {
	case "session":
		f.header(s)
	case "":
	default:
		f.entry(s)
	}
}

// isRecord reports whether an object is a line of a session.
func isRecord(m rawjson.Members) bool {
	return slices.Contains(entryTypes, m.Text("type")) && m.Text("timestamp") != ""
}

// header reads the description of the session. A second header precedes a copy of all entries, with a new tree.
func (f *fold) header(s *saying) {
	if s.Text("parentSession") != "" {
		f.copied = s.time
	}
	f.speaks(s, s.Text("modelId"))
}

func (f *fold) entry(s *saying) {
	f.move(s)
	copied := s.time.Before(f.copied)
	switch s.kind {
	case "message":
		s.Thread = agents.Main
		f.message(s, copied)
	case "compaction", "branch_summary":
		s.Thread = agents.Main
	case "custom_message":
		if shown, _ := s.Get("display"); string(shown) != "false" {
			s.Thread = agents.Main
		}
	case "model_change":
		f.speaks(s, s.Text("modelId"))
	case "session_info":
		f.called(s, strings.TrimSpace(s.Text("name")))
	}
	if s.Thread == agents.Main && s.id != "" && len(s.id) <= agents.MaxID {
		s.Turn = s.id
	}
}

// move follows the tree: an entry follows its parent. If that is not the entry before, the user went back.
func (f *fold) move(s *saying) {
	if s.id == "" {
		return
	}
	if s.parent != f.leaf {
		to, known := f.ends[s.parent]
		if !known {
			to = f.origin
		}
		if known || f.leaf != "" {
			s.Before = append(s.Before, agents.Fact{Key: "rewound" + s.key, Time: s.time,
				Payload: &events.SessionRewound{Reason: "source", Raw: links(s.entry)}, Position: &agents.Position{Stem: f.file.Stem, End: to}})
		}
	}
	f.leaf = s.id
	f.ends[s.id] = s.at.End
}

// links returns the id of an entry and of its parent as JSON.
func links(e entry) events.Raw {
	parent := &e.parent
	if e.parent == "" {
		parent = nil
	}
	return agents.Spell(struct {
		ID     string  `json:"id"`
		Parent *string `json:"parentId"`
	}{e.id, parent})
}

func (f *fold) message(s *saying, copied bool) {
	role := s.message.Text("role")
	if role == "assistant" {
		f.speaks(s, s.message.Text("model"))
	}
	if !copied {
		f.turn(s, role)
	}
	if role == "assistant" {
		f.spend(s, copied)
	}
}

// speaks adds a model to those of the session.
func (f *fold) speaks(s *saying, model string) {
	if model == "" || len(model) > agents.MaxID || !f.models.Add(model) {
		return
	}
	s.after("models", &events.SessionUpdated{Set: events.Fields{f.models.Field()}})
}

// called sets the name that the user chose for the session; no entry removes it.
func (f *fold) called(s *saying, title string) {
	if title == f.title {
		return
	}
	f.title = title
	s.after("title", agents.Titled(title))
}

// beginning returns the session's beginning from its first line.
func (f *fold) beginning(e entry) agents.Fact {
	began := e.time
	if began.IsZero() {
		began = f.name.began
	}
	cwd := e.Text("cwd")
	p := &events.SessionCreated{Kind: events.KindTranscript, CreatedAt: events.TimestampOf(began), CWD: cwd, Project: agents.Project("", cwd)}
	version, _ := e.Get("version")
	p.Settings = agents.Spell(struct {
		Agent   string          `json:"agent"`
		Version json.RawMessage `json:"version,omitempty"`
	}{agentName, version})
	if parent, ok := nameOf(e.Text("parentSession")); ok && parent.id != f.name.id {
		p.Parent = &events.Lineage{Session: session(parent.id)}
	}
	return agents.Fact{Key: "created", Time: began, Payload: p}
}

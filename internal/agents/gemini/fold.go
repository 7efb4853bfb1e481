package gemini

import (
	"bytes"
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
	name   chat
	begun  bool  // the first line was read
	origin int64 // end of the first line, if that has no message; else 0
	list   *itemList
	about  about
	run    run
	spent  map[string]counts // by message: the counts already reported
	last   string            // id of the newest message
	whole  *document         // of a file that is one value

	resumed bool      // the session was resumed, and no message came since
	held    []message // the list that was set since, if isHeld
	isHeld  bool
}

func newFold(f agents.File) *fold {
	c, ok := chatOf(f.Name)
	if !ok {
		c.whole = !strings.HasSuffix(f.Name, ".jsonl")
	}
	out := &fold{file: f, name: c, list: newList(), spent: make(map[string]counts)}
	if c.whole {
		out.whole = &document{}
	}
	return out
}

// ofSession reports whether the file is the session's own, not a sub-agent's.
func (f *fold) ofSession() bool { return f.file.Thread == agents.Main }

// saying is a line while it is read.
type saying struct {
	agents.Meaning
	at   agents.Span
	line []byte
	key  string // suffix of the facts' keys, for one of several messages
}

func (s *saying) after(key string, p events.Payload, at time.Time) {
	s.After = append(s.After, agents.Fact{Key: key + s.key, Time: at, Payload: p})
}

// Line implements agents.Fold.
func (f *fold) Line(at agents.Span, line []byte) agents.Meaning {
	s := &saying{Meaning: agents.Meaning{Thread: agents.Log}, at: at}
	m, isObject := s.object(line)
	if !f.begun {
		f.begun = true
		s.Before = append(s.Before, f.beginning(m))
		f.origin = at.End
	}
	switch {
	case f.whole != nil:
		f.part(s, line)
	case isObject:
		f.record(s, m)
	}
	return s.Meaning
}

// object returns the object of a line, or the complete one after half of another.
func (s *saying) object(line []byte) (rawjson.Members, bool) {
	list := agents.Values(line, isRecord)
	if len(list) != 1 {
		return nil, false
	}
	s.line = list[0].Raw
	return list[0].Members, true
}

// isRecord reports whether an object is a line of a session, not a part of a message.
func isRecord(m rawjson.Members) bool {
	if m.Object("$set") != nil || m.Text("$rewindTo") != "" {
		return true
	}
	return m.Text("id") != "" && m.Text("timestamp") != "" && m.Text("type") != "" || m.Text("sessionId") != "" && m.Text("projectHash") != ""
}

// record reads a line of one object. Its members decide its kind, in this order.
func (f *fold) record(s *saying, m rawjson.Members) {
	set := m.Object("$set")
	to, rewinds := textOf(m, "$rewindTo")
	msg, isMessage := messageOf(s.line, m)
	switch {
	case rewinds:
		f.settle(s)
		s.After = append(s.After, f.end(f.run.outcome(), "end")...)
		f.rewind(s, to)
	case isMessage:
		f.settle(s)
		f.put(s, msg)
		s.Time = msg.time
		f.say(s, msg)
		f.unbegun(s)
	case set != nil:
		f.patch(s, set)
	case m.Text("sessionId") != "" && m.Text("projectHash") != "":
		f.metadata(s, m)
	}
}

// unbegun records that the first line has a message, so that no position in the file is before it.
func (f *fold) unbegun(s *saying) {
	if s.at.End == f.origin {
		f.origin = 0
	}
}

// metadata reads the description of the session, at the beginning, and again after a resume.
func (f *fold) metadata(s *saying, m rawjson.Members) {
	s.Time = timeOf(m, "lastUpdated", "startTime")
	f.about.told(f, s, m)
	f.resumed = f.list.len() > 0
	if raw, ok := m.Get("messages"); ok && string(raw) != "[]" {
		for i, msg := range messagesOf(raw) {
			f.also(s, i, msg)
		}
		f.unbegun(s)
	}
}

// also adds a message from a line with several: only its fact makes it a turn.
func (f *fold) also(s *saying, i int, m message) {
	s.key = "/" + strconv.Itoa(i)
	defer func() { s.key = "" }()
	k, known := f.list.find(m.id)
	n := f.list.len()
	items := []events.Item{m.item()}
	if known {
		items = stretch(append(stretch(nil, 0, k), items...), k+1, n)
		f.list.entries[k].digest = m.digest()
	} else {
		items = append(stretch(nil, 0, n), items...)
		f.list.push(entry{id: m.id, digest: m.digest(), start: -1})
	}
	f.list.floor = s.at.End
	s.After = append(s.After, f.replaced("message"+s.key, n, items))
	f.say(s, m)
}

// patch reads a change of the session; it repeats all messages. After a resume, Gemini CLI first sets the list to
// nearly nothing and then to its old content. So a list that is set then takes effect with the next message.
func (f *fold) patch(s *saying, set rawjson.Members) {
	s.Time = timeOf(set, "lastUpdated")
	f.about.told(f, s, set)
	raw, ok := set.Get("messages")
	if _, err := rawjson.Array(raw); !ok || err != nil {
		return
	}
	if f.resumed {
		f.held, f.isHeld = messagesOf(bytes.Clone(raw)), true
		return
	}
	messages := messagesOf(raw)
	n := f.list.len()
	if items, changed := f.list.set(messages); changed {
		f.list.floor = s.at.Start // before the line, so that the next message has a position before it
		s.Before = append(s.Before, f.replaced("set", n, items))
	}
	for i, m := range messages {
		f.listed(s, i, m)
	}
}

// listed reads the facts of a message in a list.
func (f *fold) listed(s *saying, i int, m message) {
	s.key = "/" + strconv.Itoa(i)
	f.about.set(f, s, m)
	f.spend(s, m)
	s.key = ""
}

// settle applies the held list, before the line of a message.
func (f *fold) settle(s *saying) {
	f.resumed = false
	if !f.isHeld {
		return
	}
	messages := f.held
	f.held, f.isHeld = nil, false
	n := f.list.len()
	if items, changed := f.list.set(messages); changed {
		f.list.floor = s.at.Start
		s.Before = append(s.Before, f.replaced("held", n, items))
	}
	for i, m := range messages {
		f.listed(s, i, m)
	}
}

// say reads the facts of a message.
func (f *fold) say(s *saying, m message) {
	f.about.set(f, s, m)
	if f.ofSession() {
		f.turn(s, m)
	}
	f.spend(s, m)
}

// Quiet implements agents.Fold. It ends the turn, because Gemini CLI does not write the end.
func (f *fold) Quiet() []agents.Fact {
	if f.run.resting || f.run.failed != "" {
		return f.run.finish(f.run.outcome(), "quiet/end/"+f.last)
	}
	return nil
}

// timeOf returns the first of several members that is a time, or zero.
func timeOf(m rawjson.Members, names ...string) time.Time {
	for _, name := range names {
		if at, ok := agents.ParseTime(m.Text(name)); ok {
			return at
		}
	}
	return time.Time{}
}

// beginning returns the session's beginning from the first line.
func (f *fold) beginning(m rawjson.Members) agents.Fact {
	p := &events.SessionCreated{Kind: events.KindTranscript, Project: f.name.project, Settings: agents.Spell(settings{agentName})}
	began := timeOf(m, "startTime", "timestamp")
	if began.IsZero() {
		began = f.name.began
	}
	p.CreatedAt = agents.Stamp(began)
	return agents.Fact{Key: "created", Time: began, Payload: p}
}

type settings struct {
	Agent string `json:"agent"`
}

// about has the session's known properties.
type about struct {
	title, cwd string
	models     agents.Models
}

// told takes the session's properties from a record.
func (a *about) told(f *fold, s *saying, m rawjson.Members) {
	if !f.ofSession() {
		return
	}
	var set events.Fields
	if title := m.Text("summary"); title != "" && title != a.title {
		a.title = title
		set = append(set, events.Field{Name: "title", Value: agents.Spell(title)})
	}
	raw, _ := m.Get("directories")
	if list, err := rawjson.Array(raw); err == nil && len(list) > 0 {
		if dir, err := rawjson.String(list[0]); err == nil {
			set = append(set, a.in(f, dir)...)
		}
	}
	if set != nil {
		s.after("about", &events.SessionUpdated{Set: set}, s.Time)
	}
}

// in sets the working folder of the session, once.
func (a *about) in(f *fold, dir string) events.Fields {
	if dir == "" || a.cwd != "" {
		return nil
	}
	a.cwd = dir
	set := events.Fields{{Name: "cwd", Value: agents.Spell(dir)}}
	if project := agents.Project("", dir); project != f.name.project {
		set = append(set, events.Field{Name: "project", Value: agents.Spell(project)})
	}
	return set
}

// set takes the session's properties from a message: the model, and the working folder from the program's first
// message to the model.
func (a *about) set(f *fold, s *saying, m message) {
	if !f.ofSession() {
		return
	}
	var set events.Fields
	if model := m.Text("model"); m.kind == "gemini" && model != "" && len(model) <= agents.MaxID && a.models.Add(model) {
		set = append(set, a.models.Field())
	}
	if m.kind == "user" && a.cwd == "" {
		set = append(set, a.in(f, folderIn(m.words()))...)
	}
	if set != nil {
		s.after("place", &events.SessionUpdated{Set: set}, m.time)
	}
}

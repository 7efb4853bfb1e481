package claude

import (
	"encoding/json"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
)

// parser is the version of this package's interpretation of lines. It is stored in a session's settings, because
// lines that were interpreted once are not interpreted again.
const parser = 1

// sessionInfo has the session's known properties.
type sessionInfo struct {
	cwd, version, forked string
	models               agents.Models
	title, tag, name     string
	rank                 int   // rank of the title: the user's, then the model's, then a summary
	leaf                 int64 // position of the entry that the summary belongs to
}

// beginning returns the session's beginning from its first line; e is nil for a line without an entry. The time is ""
// if the line has none.
func (f *fold) beginning(e *entry) agents.Fact {
	f.begun = true
	p := &events.SessionCreated{Kind: events.KindTranscript}
	fact := agents.Fact{Key: "session", Payload: p}
	if e != nil {
		p.CreatedAt = e.spelled
		f.info.cwd, f.info.version = e.Text("cwd"), e.Text("version")
		p.CWD, p.Project = f.info.cwd, agents.Project("", f.info.cwd)
		if from := f.forkOf(e); from != "" && f.ofSession() {
			f.info.forked = from
			p.Fork = &events.Fork{Session: f.sessionBeside(from)}
			fact.Position = &agents.Position{Session: p.Fork.Session, Stem: from}
		}
	}
	p.Settings = settings(f.info.version)
	return fact
}

// settings returns the settings of the session.
func settings(version string) json.RawMessage {
	return agents.Spell(struct {
		Agent   string `json:"agent"`
		Version string `json:"version,omitempty"`
		Parser  int    `json:"parser"`
	}{"claude", version, parser})
}

// forkOf returns the session from which an entry was copied, "" if it was not copied.
func (f *fold) forkOf(e *entry) string {
	from := e.Object("forkedFrom").Text("sessionId")
	if !token(from) || f.sessionBeside(from) == f.file.Session || len(f.sessionBeside(from)) > events.MaxIDLen {
		return ""
	}
	return from
}

// sessionBeside returns the id of another session of the same project.
func (f *fold) sessionBeside(id string) string {
	return f.file.Session[:strings.LastIndexByte(f.file.Session, '/')+1] + id
}

// update returns the properties that an entry changes.
func (i *sessionInfo) update(f *fold, e *entry, n noted) []agents.Fact {
	var set events.Fields
	add := func(name string, value json.RawMessage) { set = append(set, events.Field{Name: name, Value: value}) }
	if cwd := e.Text("cwd"); cwd != "" && i.cwd == "" {
		i.cwd = cwd
		add("cwd", jsonString(cwd))
		add("project", jsonString(agents.Project("", cwd)))
	}
	if v := e.Text("version"); v != "" && v != i.version {
		i.version = v
		add("settings", settings(v))
	}
	if from := f.forkOf(e); from != "" && i.forked == "" {
		i.forked = from
		add("forkedFrom", jsonString(f.sessionBeside(from)))
	}
	if model := e.message.Text("model"); n.thread == agents.Main && model != "" && isModel(model) && i.models.Add(model) {
		add("models", agents.Spell(i.models))
	}
	i.call(f, e, add)
	if set == nil {
		return nil
	}
	return []agents.Fact{{Key: "about", Payload: &events.SessionUpdated{Set: set}}}
}

// isModel reports whether a name is a model's. Messages of the program itself have a name in brackets.
func isModel(name string) bool { return !strings.HasPrefix(name, "<") }

// call adds the name of the session.
func (i *sessionInfo) call(f *fold, e *entry, add func(string, json.RawMessage)) {
	switch e.kind {
	case "summary":
		i.summarize(f, e, add)
	case "ai-title":
		i.entitle(2, e.word(), add)
	case "custom-title":
		i.entitle(3, e.word(), add)
	case "tag":
		changed(&i.tag, e.word(), "tag", add)
	case "agent-name":
		changed(&i.name, e.word(), "agentName", add)
	}
}

// summarize takes a summary of the conversation up to an entry. There are several, also of other conversations. The
// summary counts whose entry is the last one in this file.
func (i *sessionInfo) summarize(f *fold, e *entry, add func(string, json.RawMessage)) {
	leaf := f.tree.end(e.Text("leafUuid"))
	if leaf < i.leaf { // -1: the entry is not in the file
		return
	}
	i.leaf = leaf
	i.entitle(1, e.word(), add)
}

// entitle sets the title, unless a better one is known.
func (i *sessionInfo) entitle(rank int, title string, add func(string, json.RawMessage)) {
	if title == "" || rank < i.rank {
		return
	}
	i.rank = rank
	changed(&i.title, title, "title", add)
}

// changed adds a field if its value changed; null for a removed one.
func changed(have *string, now, field string, add func(string, json.RawMessage)) {
	if *have == now {
		return
	}
	*have = now
	if now == "" {
		add(field, json.RawMessage("null"))
		return
	}
	add(field, jsonString(now))
}

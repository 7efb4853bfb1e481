package stream

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// fold is what is known of a file.
type fold struct {
	file   agents.File
	kind   *kind
	thread string // id of the agent's session; "": it says none
	begun  bool   // the first line was read
	model  string // as the command or a line says
	models agents.Models
	run    run
	runs   int
	text   pieces
	spent  map[string]events.Tokens // by response, of those that were told last
	last   []string                 // their ids, the oldest first
	answer answer                   // that Claude Code told last
	stop   string                   // why the model stopped last, as pi says it
}

// answer is a response, by the maker's id and by that which joins its costs.
type answer struct{ id, response string }

// run is what is under way.
type run struct {
	events.RunRef // zero: nothing is
}

func newFold(f agents.File) *fold {
	n, ok := nameOf(f.Name)
	if !ok {
		n.kind = &linesKind
	}
	return &fold{file: f, kind: n.kind, thread: n.id, spent: make(map[string]events.Tokens)}
}

// Quiet implements agents.Fold: a program that prints nothing is at work.
func (f *fold) Quiet() []agents.Fact { return nil }

// saying is a line while it is read.
type saying struct {
	agents.Meaning
	rawjson.Members
	kind string // its type
}

func (s *saying) before(key string, p events.Payload) {
	s.Before = append(s.Before, agents.Fact{Key: key, Time: s.Time, Payload: p})
}

func (s *saying) after(key string, p events.Payload) {
	s.After = append(s.After, agents.Fact{Key: key, Time: s.Time, Payload: p})
}

// main lets the line be a turn of main, with an id that the line says, or "".
func (s *saying) main(id string) {
	s.Thread = agents.Main
	if len(id) <= agents.MaxID {
		s.Turn = id
	}
}

// Line implements agents.Fold.
func (f *fold) Line(_ agents.Span, line []byte) agents.Meaning {
	s := &saying{Meaning: agents.Meaning{Thread: agents.Log}}
	m, err := rawjson.Object(line)
	if err == nil {
		s.Members, s.kind = m, m.Text("type")
		s.Time, _ = agents.ParseTime(m.Text("timestamp"))
	}
	first := !f.begun
	if first {
		f.begun = true
		f.begin(s)
	}
	switch {
	case err != nil:
	case first && isFrame(m):
		f.command(s)
	case isEnd(m):
		f.end(s)
	default:
		f.kind.line(f, s)
	}
	return s.Meaning
}

// begin says what the session is.
func (f *fold) begin(s *saying) {
	cwd, command := s.Text("cwd"), commandIn(s.Members)
	p := &events.SessionCreated{Kind: events.KindTranscript, CWD: cwd, Project: agents.Project("", cwd)}
	p.CreatedAt = agents.Stamp(s.Time)
	if f.kind.silent {
		p.Title = title(command)
	}
	p.Settings = agents.Spell(struct {
		Agent   string   `json:"agent"`
		Command []string `json:"command,omitempty"`
	}{agentOf(f.kind, command), command})
	s.before("created", p)
}

func agentOf(k *kind, command []string) string {
	if k == &linesKind {
		return programOf(command)
	}
	return k.name
}

// maxTitle bounds a title, in bytes.
const maxTitle = 200

// title is a command as a shell would read it, or how it begins.
func title(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = word
		if word == "" || strings.ContainsAny(word, " \t\r\n\"'\\$&|;<>()*?`#!~") {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	text := strings.Join(strings.Fields(strings.Join(words, " ")), " ")
	if len(text) > maxTitle {
		text = strings.ToValidUTF8(text[:maxTitle], "") + "…"
	}
	return text
}

// command reads the recorder's first line.
func (f *fold) command(s *saying) {
	s.main("")
	command := commandIn(s.Members)
	f.model = modelIn(command)
	if f.kind == &linesKind {
		f.start(s, "command")
	}
}

// modelIn returns the model that a command asks for, "" if it asks for none.
func modelIn(command []string) string {
	for i, arg := range command {
		flag, value, isOne := strings.Cut(arg, "=")
		if !isOne && i+1 < len(command) {
			value = command[i+1]
		}
		if flag == "-m" || flag == "--model" {
			return cut(value)
		}
	}
	return ""
}

// cut returns a text that is short enough to be a name, else "".
func cut(text string) string {
	if len(text) > agents.MaxID {
		return ""
	}
	return text
}

// end reads the recorder's last line: nothing comes of what is under way.
func (f *fold) end(s *saying) {
	f.whole(s)
	outcome, result := ending(s.Members)
	if outcome == "completed" && f.run.Kind == "turn" {
		outcome = "stopped:unfinished"
	}
	f.finish(s, outcome, result, nil)
}

// start begins a run, if none is under way.
func (f *fold) start(s *saying, kind string) {
	if f.run.ID != "" {
		return
	}
	f.runs++
	f.run = run{events.RunRef{Kind: kind, ID: f.file.Stem + "/" + strconv.Itoa(f.runs)}}
	p := &events.RunCreated{Run: f.run.RunRef}
	p.CreatedAt = agents.Stamp(s.Time)
	s.after("run", p)
}

// finish ends the run that is under way.
func (f *fold) finish(s *saying, outcome string, result, usage events.Raw) {
	if f.run.ID == "" {
		return
	}
	p := &events.RunFinished{Run: f.run.RunRef, Outcome: outcome, Result: result, Usage: usage}
	p.FinishedAt = agents.Stamp(s.Time)
	f.run = run{}
	s.after("end", p)
}

// failure is the result of a run that an error ended.
func failure(message string) events.Raw {
	if message == "" {
		return events.Raw("{}")
	}
	return agents.Spell(map[string]string{"error": message})
}

// speaks hears which model speaks from here on.
func (f *fold) speaks(s *saying, model string) {
	if model = cut(model); model == "" || model == "<synthetic>" {
		return
	}
	f.model = model
	if f.models.Add(model) {
		s.after("models", &events.SessionUpdated{Set: events.Fields{f.models.Field()}})
	}
}

// about says where the program works, if the recorder does not.
func (f *fold) about(s *saying, cwd string) {
	for _, fact := range s.Before {
		if p, ok := fact.Payload.(*events.SessionCreated); ok && p.CWD == "" {
			p.CWD, p.Project = cwd, agents.Project("", cwd)
		}
	}
}

// pieces are a text that comes bit by bit.
type pieces struct {
	text []byte
	sent int // how much of it was told
	seq  int64
	at   json.RawMessage // when it began, as the line says
	said int             // texts before
}

// Pieces are told so many bytes at a time, and kept up to so many.
const (
	packed  = 4 << 10
	maxText = 16 << 20
)

// piece adds a piece of a text of which the whole comes, or not, in a turn with an id.
func (f *fold) piece(s *saying, text, turn string) {
	t := &f.text
	if len(t.text)+len(text) > maxText {
		return
	}
	if t.text == nil {
		raw, _ := s.Get("timestamp")
		t.at = bytes.Clone(raw)
	}
	t.text = append(t.text, text...)
	if len(t.text)-t.sent < packed || f.run.ID == "" {
		return
	}
	t.seq++
	s.after("delta", &events.RunProgressed{Run: f.run.RunRef, Kind: "text", Thread: agents.Main, Turn: turn, Seq: t.seq, Delta: agents.Spell(valid(string(t.text[t.sent:])))})
	t.sent = len(t.text)
}

// done forgets the pieces of a text that was said as a whole.
func (f *fold) done() { f.text = pieces{seq: f.text.seq, said: f.text.said} }

// whole adds what pieces are as a turn, before the line, where nobody says the whole.
func (f *fold) whole(s *saying) {
	if f.kind.inPieces && f.text.text != nil {
		s.before("said", &events.TurnAppended{Entries: []events.Entry{f.said()}})
		f.text.said++
	}
	f.done()
}

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

// fold is the state of a file.
type fold struct {
	file   agents.File
	kind   *outputFormat
	thread string // id of the agent's session; "": unknown
	begun  bool   // the first line was read
	model  string // from the command or a line
	models agents.Models
	run    run
	runs   int
	text   pieces
	spent  map[string]events.Tokens // by response, of the most recent ones
	last   []string                 // ids of spent, the oldest first
	answer answer                   // the last one of Claude Code
	stop   string                   // why the model stopped last, in pi's words
}

// answer is a response: the maker's id, and the id that joins its costs.
type answer struct{ id, response string }

// run is the current run.
type run struct {
	events.RunRef // zero: none
}

func newFold(f agents.File) *fold {
	n, ok := nameOf(f.Name)
	if !ok {
		n.kind = &linesKind
	}
	return &fold{file: f, kind: n.kind, thread: n.id, spent: make(map[string]events.Tokens)}
}

// Quiet implements agents.Fold. It returns no facts, because a program that prints nothing may be working.
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

// main makes the line a turn of main, with id, which may be "".
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

// begin adds the beginning of the session.
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

func agentOf(k *outputFormat, command []string) string {
	if k == &linesKind {
		return programOf(command)
	}
	return k.name
}

// maxTitle is the maximal size of a title in bytes.
const maxTitle = 200

// title returns a command in the syntax of a shell, or its beginning.
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

// modelIn returns the model that a command selects, "" if it selects none.
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

// cut returns a text that is short enough for a name, else "".
func cut(text string) string {
	if len(text) > agents.MaxID {
		return ""
	}
	return text
}

// end reads the recorder's last line and ends the current run.
func (f *fold) end(s *saying) {
	f.whole(s)
	outcome, result := ending(s.Members)
	if outcome == "completed" && f.run.Kind == "turn" {
		outcome = "stopped:unfinished"
	}
	f.finish(s, outcome, result, nil)
}

// start begins a run, unless one is open.
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

// finish ends the open run.
func (f *fold) finish(s *saying, outcome string, result, usage events.Raw) {
	if f.run.ID == "" {
		return
	}
	p := &events.RunFinished{Run: f.run.RunRef, Outcome: outcome, Result: result, Usage: usage}
	p.FinishedAt = agents.Stamp(s.Time)
	f.run = run{}
	s.after("end", p)
}

// failure returns the result of a run that ended with an error.
func failure(message string) events.Raw {
	if message == "" {
		return events.Raw("{}")
	}
	return agents.Spell(map[string]string{"error": message})
}

// speaks records the model of the following messages.
func (f *fold) speaks(s *saying, model string) {
	if model = cut(model); model == "" || model == "<synthetic>" {
		return
	}
	f.model = model
	if f.models.Add(model) {
		s.after("models", &events.SessionUpdated{Set: events.Fields{f.models.Field()}})
	}
}

// about sets the folder of the program, unless the recorder has set it.
func (f *fold) about(s *saying, cwd string) {
	for _, fact := range s.Before {
		if p, ok := fact.Payload.(*events.SessionCreated); ok && p.CWD == "" {
			p.CWD, p.Project = cwd, agents.Project("", cwd)
		}
	}
}

// pieces is a text that arrives in pieces.
type pieces struct {
	text []byte
	sent int // number of bytes already reported
	seq  int64
	at   json.RawMessage // time of its first piece, as the line has it
	said int             // number of texts before
}

// Size in bytes of one report of pieces, and maximal size of a kept text.
const (
	packed  = 4 << 10
	maxText = 16 << 20
)

// piece adds a piece of a text. turn is the id of the turn that will have the whole text.
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

// done drops the pieces of a text that arrived as a whole.
func (f *fold) done() { f.text = pieces{seq: f.text.seq, said: f.text.said} }

// whole adds the collected text as a turn before the line, if the program never prints the whole text.
func (f *fold) whole(s *saying) {
	if f.kind.inPieces && f.text.text != nil {
		s.before("said", &events.TurnAppended{Entries: []events.Entry{f.said()}})
		f.text.said++
	}
	f.done()
}

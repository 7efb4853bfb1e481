package inspect

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// aside lists the threads of a transcript that are not shown beside its conversation: what
// the agent logs, and what its sub-agents say, whose last word stands there as a result.
func (v *viewer) aside(s *projector.Session) (names []string) {
	if s.Ledger.Kind != events.KindTranscript || v.thread != "" || v.all {
		return nil
	}
	for _, name := range s.Threads.Names() {
		if name == events.LogThread || name != events.MainThread && len(s.Threads.Turns(events.MainThread)) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// sayAside says what is not shown.
func (p *printer) sayAside(v *viewer, s *projector.Session, names []string) {
	var list []string
	for _, name := range names {
		if n := v.before[name] + len(s.Threads.Turns(name)); n > 0 {
			list = append(list, fmt.Sprintf("%s, %s", name, plain.Count(n, "turn")))
		}
	}
	if len(list) == 0 {
		return
	}
	p.printf("\n")
	for i, text := range list {
		if i == 0 {
			text += "  (beside the conversation: --thread NAME shows it)"
		}
		p.printf("%s\n", p.style.Dim(render.Cut(text, p.width)))
	}
}

// agentHead is what the first line says of a transcript behind its id.
func agentHead(s *projector.Session) (list []string) {
	settings, _ := s.Ledger.Fields.Get("settings")
	m, _ := rawjson.Object(settings) // what is not an object says nothing
	models := ""
	if raw, ok := s.Ledger.Fields.Get("models"); ok {
		names, _ := rawjson.Array(raw)
		for i, name := range names {
			text, _ := rawjson.String(name)
			models += map[bool]string{true: ", "}[i > 0] + text
		}
	}
	agent := m.Text("agent")
	if version := m.Text("version"); agent != "" && version != "" {
		agent += " " + version
	}
	return []string{cmp.Or(agent, s.Ledger.Kind), s.Ledger.Text("project"), models, s.Ledger.Text("title"), s.Ledger.Text("status")}
}

// folds reports whether what is said is a line in a transcript, as on the agent's screen:
// what the model thought, and what the program told the model.
func folds(line render.Line) bool {
	return line.Thought || slices.Contains([]string{"meta", "system", "developer", "summary"}, line.Role)
}

// envelope is what Codex writes before what a command has printed.
var envelope = regexp.MustCompile(`(?:Chunk ID: \S+\n)?Wall time: [0-9.]+ seconds\n(?:Process exited with code (\d+)\n)?(?:Original token count: \d+\n)?Output:\n`)

// unwrapped is a result without that; a code other than 0 stays.
func unwrapped(text string) string {
	at := envelope.FindStringSubmatchIndex(text)
	if at == nil {
		return text
	}
	code := ""
	if at[2] >= 0 && text[at[2]:at[3]] != "0" {
		code = "exit code " + text[at[2]:at[3]] + ": "
	}
	return text[:at[0]] + code + text[at[1]:]
}

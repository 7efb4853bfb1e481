package render

import (
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// Opening returns the first nonblank line by a user in the turns of a record, or in the prompt of a panel's run. It
// returns "" if no user speaks.
func Opening(f projector.Fact) string {
	if p, ok := f.Payload.(*events.RunFinished); ok {
		result, _ := rawjson.Object(p.Result) // a result of another form has no prompt
		return firstLine(result.Object("content").Text("prompt"))
	}
	brought := f.Brings()
	names := brought.Names()
	if i := slices.Index(names, events.MainThread); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, events.MainThread)
	}
	for _, name := range names {
		if text := OpeningOf(brought.Turns(name)); text != "" {
			return text
		}
	}
	return ""
}

// OpeningOf returns the first line by a user in a list of turns, or "".
func OpeningOf(list []projector.Turn) string {
	for _, t := range list {
		if text := asked(t); text != "" {
			return text
		}
	}
	return ""
}

// asked returns the first line by a user in a turn. Plain text does not name its speaker, and counts as a user's.
func asked(t projector.Turn) string {
	read, _ := Read(t) // a turn of unknown shape has no parts
	for _, p := range read.Parts {
		if p.Kind == shapes.Said && (strings.EqualFold(p.Role, "user") || read.Shape == "text") {
			if text := firstLine(p.Text); text != "" && !(read.Shape == "claude-code" && isOfProgram(text)) {
				return text
			}
		}
	}
	return ""
}

// isOfProgram reports whether a line is a command that Claude Code handles itself. The model does not see it, and it
// says nothing about the session.
func isOfProgram(line string) bool {
	name, _, _ := strings.Cut(line, " ")
	return slices.Contains(programCommands, name)
}

var programCommands = []string{
	"/add-dir", "/agents", "/bashes", "/bug", "/clear", "/compact", "/config", "/context", "/cost", "/doctor", "/effort", "/exit", "/export", "/fast", "/feedback",
	"/help", "/hooks", "/ide", "/login", "/logout", "/mcp", "/memory", "/model", "/output-style", "/permissions", "/plugin", "/quit", "/release-notes", "/rename",
	"/resume", "/rewind", "/sandbox", "/stats", "/status", "/statusline", "/tasks", "/terminal-setup", "/theme", "/todos", "/upgrade", "/usage", "/vim",
}

// firstLine returns the first nonblank line, with single spaces between words.
func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if words := strings.Fields(line); len(words) > 0 {
			return strings.Join(words, " ")
		}
	}
	return ""
}

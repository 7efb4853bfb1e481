package render

import (
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// Opening returns what a user says first in what a record brings, in a turn or as the
// prompt of a panel's run: the first line of it that is not blank. It is "" if no user
// says anything.
func Opening(f projector.Fact) string {
	if p, ok := f.Payload.(*events.RunFinished); ok {
		result, _ := rawjson.Object(p.Result) // another form has no prompt
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

// OpeningOf returns the first line that a user says in turns, "" if no user says anything.
func OpeningOf(list []projector.Turn) string {
	for _, t := range list {
		if text := asked(t); text != "" {
			return text
		}
	}
	return ""
}

// asked is the first line that a user says in a turn. A turn that is text alone says not
// who speaks, and is taken for a user's.
func asked(t projector.Turn) string {
	read, _ := Read(t) // of what has no known shape it is not known who speaks
	for _, p := range read.Parts {
		if p.Kind == shapes.Said && (strings.EqualFold(p.Role, "user") || read.Shape == "text") {
			if text := firstLine(p.Text); text != "" && !(read.Shape == "claude-code" && isOfProgram(text)) {
				return text
			}
		}
	}
	return ""
}

// isOfProgram reports whether a line is a command that Claude Code runs itself: the model
// hears nothing of it, and no session is about it.
func isOfProgram(line string) bool {
	name, _, _ := strings.Cut(line, " ")
	return slices.Contains(programCommands, name)
}

var programCommands = []string{
	"/add-dir", "/agents", "/bashes", "/bug", "/clear", "/compact", "/config", "/context", "/cost", "/doctor", "/effort", "/exit", "/export", "/fast", "/feedback",
	"/help", "/hooks", "/ide", "/login", "/logout", "/mcp", "/memory", "/model", "/output-style", "/permissions", "/plugin", "/quit", "/release-notes", "/rename",
	"/resume", "/rewind", "/sandbox", "/stats", "/status", "/statusline", "/tasks", "/terminal-setup", "/theme", "/todos", "/upgrade", "/usage", "/vim",
}

// firstLine returns the first line that is not blank, with one space between words.
func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if words := strings.Fields(line); len(words) > 0 {
			return strings.Join(words, " ")
		}
	}
	return ""
}

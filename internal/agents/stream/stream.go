package stream

import (
	"path"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

const agentName = "exec"

// Agent is any program that was recorded.
type Agent struct{}

var _ agents.Agent = Agent{}

// Name implements agents.Agent.
func (Agent) Name() string { return agentName }

// Format implements agents.Agent.
func (Agent) Format() string { return agentName }

// Roots returns nothing: users choose where they record files.
func (Agent) Roots(func(string) string) []string { return nil }

// Wants implements agents.Agent.
func (Agent) Wants(file string) bool {
	_, ok := nameOf(file)
	return ok
}

// Below returns the file's own name.
func (a Agent) Below(file string) (string, bool) { return path.Base(file), a.Wants(file) }

// File describes a file by its name alone.
func (Agent) File(file string, _ []byte) (agents.File, bool) {
	n, ok := nameOf(file)
	if !ok {
		return agents.File{}, false
	}
	return agents.File{Name: file, Stem: n.stem, Session: n.session(), Thread: agents.Main}, true
}

// Fold implements agents.Agent.
func (Agent) Fold(f agents.File) agents.Fold { return newFold(f) }

// outputFormat is a format of output.
type outputFormat struct {
	name    string
	is      func(program string, args []string) bool // whether a command has this format
	session string                                   // member of the first lines that has the session's id
	silent  bool                                     // it does not print the prompt
	line    func(*fold, *saying)

	inPieces bool // it never prints the whole of a text that it prints in pieces
}

// kinds are tried in this order; lines matches all other commands.
var kinds = []*outputFormat{&codexKind, &geminiKind, &claudeKind, &piKind, &linesKind}

// Lines is the format of any other output.
const Lines = "lines"

// linesKind is any text.
var linesKind = outputFormat{name: Lines, is: func(string, []string) bool { return true }, silent: true, line: func(*fold, *saying) {}}

func kindNamed(name string) *outputFormat {
	i := slices.IndexFunc(kinds, func(k *outputFormat) bool { return k.name == name })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// Formats lists the names of the formats.
func Formats() []string {
	var list []string
	for _, k := range kinds {
		list = append(list, k.name)
	}
	return list
}

// FormatOf returns the format of a command's output if it is certain, else Lines.
func FormatOf(command []string) string {
	program := programOf(command)
	i := slices.IndexFunc(kinds, func(k *outputFormat) bool { return k.is(program, command[min(1, len(command)):]) })
	return kinds[i].name
}

// programOf returns the name of the program of a command, without folder and suffix.
func programOf(command []string) string {
	if len(command) == 0 {
		return ""
	}
	base := baseOf(command[0])
	for _, ext := range []string{".exe", ".cmd", ".bat", ".js", ".mjs"} {
		base = strings.TrimSuffix(base, ext)
	}
	return base
}

// hasFlag reports whether the arguments set one of several flags to a value, in one word or two.
func hasFlag(args []string, value string, flags ...string) bool {
	for i, arg := range args {
		flag, set, isOne := strings.Cut(arg, "=")
		if !isOne && i+1 < len(args) {
			set = args[i+1]
		}
		if slices.Contains(flags, flag) && set == value {
			return true
		}
	}
	return false
}

// SessionIn returns the session's id in a line, or "".
func SessionIn(format string, line []byte) string {
	k := kindNamed(format)
	m, err := rawjson.Object(line)
	if k == nil || k.session == "" || err != nil {
		return ""
	}
	if id := m.Text(k.session); token(id) {
		return id
	}
	return ""
}

// FileName returns the name of a file for the output of a command. stamp has letters, digits and hyphens, and is
// unique. session is the result of SessionIn.
func FileName(format, stamp, session string, command []string) string {
	if format == Lines {
		session = programOf(command)
		if !token(session) {
			session = "command"
		}
		return stamp + "_" + session + ".lines"
	}
	if session != "" {
		stamp += "_" + session
	}
	return stamp + "." + format + ".jsonl"
}

// named is a parsed file name.
type named struct {
	stem string
	kind *outputFormat
	id   string // "": none
}

func nameOf(file string) (n named, ok bool) {
	base := path.Base(file)
	if stem, isLines := strings.CutSuffix(base, ".lines"); isLines {
		n = named{stem: stem, kind: &linesKind}
	} else {
		stem, isJSON := strings.CutSuffix(base, ".jsonl")
		dot := strings.LastIndexByte(stem, '.')
		if !isJSON || dot < 0 || stem[dot+1:] == Lines {
			return n, false
		}
		n = named{stem: stem[:dot], kind: kindNamed(stem[dot+1:])}
	}
	_, n.id, _ = strings.Cut(n.stem, "_")
	ok = n.kind != nil && token(n.stem) && (n.id == "" || token(n.id)) && len(n.session()) <= events.MaxIDLen
	return n, ok
}

// session returns the id of the session in tally.
func (n named) session() string {
	switch {
	case n.kind == &linesKind:
		stamp, program, ok := strings.Cut(n.stem, "_")
		if !ok {
			program = "command"
		}
		return agentName + "/" + program + "/" + stamp
	case n.id != "":
		return agentName + "/" + n.kind.name + "/" + n.id
	}
	return agentName + "/" + n.kind.name + "/" + n.stem
}

// token reports whether a text can be part of an id.
func token(s string) bool { return agents.IsToken(s, "._-+") && s[0] != '.' }

// baseOf returns the last part of a path of any system.
func baseOf(dir string) string {
	dir = strings.TrimRight(dir, `/\`)
	return dir[strings.LastIndexAny(dir, `/\`)+1:]
}

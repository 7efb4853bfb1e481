package stream

import (
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// frame is the type of the recorder's lines, the first and the last of a file: {"type":"tally.exec", ...}.
const frame = "tally.exec"

// Begin returns the first line of a file, without its line end: command, folder and time.
func Begin(command []string, cwd string, at time.Time) []byte {
	return agents.Spell(struct {
		Type    string           `json:"type"`
		Time    events.Timestamp `json:"timestamp"`
		CWD     string           `json:"cwd,omitempty"`
		Command []string         `json:"command"`
	}{frame, events.TimestampOf(at), valid(cwd), validAll(command)})
}

// Ending describes how a program ended.
type Ending struct {
	Exit   int    // its exit code; after a signal, 128 plus the signal
	Signal string // name of the signal; "": none
	Torn   bool   // the line before had no line end, so the recorder added it
	Lost   bool   // a part of the output is missing
	Cut    bool   // the recorder ended before the program; the outcome is unknown
}

// End returns the last line of a file, without its line end.
func End(e Ending, at time.Time) []byte {
	type line struct {
		Type   string           `json:"type"`
		Time   events.Timestamp `json:"timestamp"`
		Exit   *int             `json:"exit,omitempty"`
		Signal string           `json:"signal,omitempty"`
		Torn   bool             `json:"torn,omitempty"`
		Lost   bool             `json:"lost,omitempty"`
		Cut    bool             `json:"cut,omitempty"`
	}
	l := line{Type: frame, Time: events.TimestampOf(at), Signal: e.Signal, Torn: e.Torn, Lost: e.Lost, Cut: e.Cut}
	if !e.Cut {
		l.Exit = &e.Exit
	}
	return agents.Spell(l)
}

// IsEnd reports whether a line is the result of End.
func IsEnd(line []byte) bool {
	m, err := rawjson.Object(line)
	return err == nil && isEnd(m)
}

func isFrame(m rawjson.Members) bool { return m.Text("type") == frame }

func isEnd(m rawjson.Members) bool {
	if _, begins := m.Get("command"); begins {
		return false
	}
	return isFrame(m)
}

// ending reads a last line and returns the outcome and the result of the open run.
func ending(m rawjson.Members) (outcome string, result events.Raw) {
	exit, hasExit := m.Get("exit")
	switch {
	case m.Text("signal") != "":
		return "interrupted", agents.Spell(map[string]string{"signal": m.Text("signal")})
	case !hasExit:
		return "stopped:unrecorded", events.Raw("{}")
	case string(exit) == "0":
		return "completed", events.Raw(`{"exit":0}`)
	}
	code, err := strconv.Atoi(string(exit))
	if err != nil {
		code = 1
	}
	return "failed", agents.Spell(map[string]int{"exit": code})
}

// commandIn returns the command in a first line.
func commandIn(m rawjson.Members) []string {
	raw, _ := m.Get("command")
	list, err := rawjson.Array(raw)
	if err != nil {
		return nil
	}
	var command []string
	for _, elem := range list {
		word, err := rawjson.String(elem)
		if err != nil {
			return nil
		}
		command = append(command, word)
	}
	return command
}

// valid replaces invalid UTF-8, which JSON cannot hold.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func validAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = valid(s)
	}
	return out
}

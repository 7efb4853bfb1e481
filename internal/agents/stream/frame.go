package stream

import (
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// A frame is a line of the recorder's: {"type":"tally.exec", ...}, the first of a file and the last.
const frame = "tally.exec"

// Begin returns the first line of a file, without its end: what is run, where, and when.
func Begin(command []string, cwd string, at time.Time) []byte {
	return agents.Spell(struct {
		Type    string           `json:"type"`
		Time    events.Timestamp `json:"timestamp"`
		CWD     string           `json:"cwd,omitempty"`
		Command []string         `json:"command"`
	}{frame, events.TimestampOf(at), valid(cwd), validAll(command)})
}

// Ending is how a program ended.
type Ending struct {
	Exit   int    // its exit code; 128 and the signal if one ended it
	Signal string // that ended it; "": none
	Torn   bool   // the line before has no end: it was added
	Lost   bool   // what it printed is not all there
	Cut    bool   // the recorder ended before the program did: nothing else is known
}

// End returns the last line of a file, without its end.
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

// IsEnd reports whether a line is what End returned.
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

// ending reads a last line: how what was under way ended, and what is known of that.
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

// commandIn reads the command of a first line.
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

// valid is a text as JSON can have it.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func validAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = valid(s)
	}
	return out
}

package taverndir

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// sessionsName is the file of an agent's log, with a JSON object per line.
const sessionsName = "sessions.jsonl"

// logEntry is a line of an agent's log.
type logEntry struct {
	said   events.SessionLog
	reason string
}

// line is an entry as the original writes it, with its order of members.
type line struct {
	Event     string `json:"event"`
	SessionID string `json:"sessionId,omitempty"`
	Timestamp string `json:"timestamp"`
	Reason    string `json:"reason,omitempty"`
}

// words maps the original's event names to tally's.
var words = map[string]string{"session_started": "started", "session_expired": "expired", "session_ended": "ended", "break": "break", "other": "other"}

// parseSessions parses a file of entries, in their order. It skips invalid lines, as the original does, and calls bad
// for each.
func parseSessions(text []byte, bad func(line int, reason string)) []logEntry {
	var list []logEntry
	n := 0
	for l := range bytes.Lines(text) {
		n++
		l = bytes.TrimRight(l, "\r\n")
		if len(l) == 0 {
			continue
		}
		e, err := parseEntry(l)
		if err != nil {
			bad(n, err.Error())
			continue
		}
		list = append(list, e)
	}
	return list
}

func parseEntry(text []byte) (logEntry, error) {
	members, err := rawjson.Object(text)
	if err != nil {
		return logEntry{}, err
	}
	var said [4]string
	for i, name := range []string{"event", "sessionId", "timestamp", "reason"} {
		for _, m := range members {
			if m.Name != name || string(m.Value) == "null" {
				continue
			}
			if said[i], err = rawjson.String(m.Value); err != nil {
				return logEntry{}, fmt.Errorf("%s: %v", name, err)
			}
		}
	}
	word, known := words[said[0]]
	if !known {
		return logEntry{}, fmt.Errorf("event: %q is unknown", said[0])
	}
	if _, ok := events.Timestamp(said[2]).Time(); !ok { // time.Parse takes hours of one digit too
		return logEntry{}, fmt.Errorf("timestamp: %q is not a time", said[2])
	}
	return logEntry{events.SessionLog{Event: word, Session: said[1], At: events.Timestamp(said[2])}, said[3]}, nil
}

// entriesOf returns the entries of a session's log.
func entriesOf(l *projector.Ledger) []logEntry {
	var list []logEntry
	for _, e := range l.Log {
		list = append(list, logEntry{e.SessionLog, e.Reason})
	}
	return list
}

// renderSessions writes entries as the original does.
func renderSessions(list []logEntry) ([]byte, error) {
	var b bytes.Buffer
	for _, e := range list {
		l := line{Event: e.said.Event, SessionID: e.said.Session, Timestamp: string(e.said.At), Reason: e.reason}
		for word, short := range words {
			if short == e.said.Event {
				l.Event = word
			}
		}
		text, err := rawjson.Marshal(l)
		if err != nil {
			return nil, err
		}
		b.Write(append(text, '\n'))
	}
	return b.Bytes(), nil
}

// grown returns a kept file with newer entries appended.
func grown(kept []byte, said []logEntry) ([]byte, error) {
	had := len(parseSessions(kept, func(int, string) {}))
	if had >= len(said) {
		return kept, nil
	}
	more, err := renderSessions(said[had:])
	if err != nil {
		return nil, err
	}
	if len(kept) > 0 && !bytes.HasSuffix(kept, []byte("\n")) {
		kept = append(bytes.Clone(kept), '\n')
	}
	return append(bytes.Clone(kept), more...), nil
}

// isStopped reports whether a state is that of a stopped agent.
func isStopped(state string) bool { return strings.HasPrefix(state, "stopped:") }

package codex

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// An entry is a parsed line: {timestamp, ordinal?, type, payload}.
type entry struct {
	raw     []byte // of the entry alone
	time    time.Time
	ordinal int64 // -1: none
	kind    string
	payload rawjson.Members
	event   string // type of the payload
}

// The types of lines.
const (
	metaLine      = "session_meta"
	itemLine      = "response_item"
	eventLine     = "event_msg"
	contextLine   = "turn_context"
	compactedLine = "compacted"
	usageLine     = "token_usage_record"
)

// maxGlued is the maximal number of pieces of a line that is not one JSON value.
const maxGlued = 8

// lineStart is the beginning of a line. A JSON text has its quotes escaped, so if lineStart occurs inside a line,
// another line was written there.
var lineStart = []byte(`{"timestamp":`)

// entriesOf parses a line. If Codex could not write a line completely, it writes it again after the torn one. Two
// entries may also share a line if the bytes between them were lost. A torn entry is ignored, and a repeated one
// counts once.
func entriesOf(line []byte) []entry {
	line = rawjson.Trim(line)
	if e, ok := entryOf(line); ok {
		return []entry{e}
	}
	cuts := cutsOf(line)
	var list []entry
	for i, done := 0, 0; i+1 < len(cuts); i++ {
		for j := len(cuts) - 1; j > i && cuts[i] >= done; j-- {
			e, ok := entryOf(rawjson.Trim(line[cuts[i]:cuts[j]]))
			if !ok {
				continue
			}
			done = cuts[j]
			if len(list) == 0 || !bytes.Equal(list[len(list)-1].raw, e.raw) {
				list = append(list, e)
			}
		}
	}
	if len(list) == 0 { // the members of an entry may have another order
		for _, v := range agents.Values(line, isRecord) {
			if e, ok := entryOf(v.Raw); ok {
				list = append(list, e)
			}
		}
	}
	return list
}

func isRecord(m rawjson.Members) bool {
	return m.Text("timestamp") != "" && m.Text("type") != "" && m.Object("payload") != nil
}

// cutsOf returns the possible boundaries of entries in a line.
func cutsOf(line []byte) []int {
	cuts := []int{0}
	for at := 1; len(cuts) < maxGlued && at < len(line); at++ {
		i := bytes.Index(line[at:], lineStart)
		if i < 0 {
			break
		}
		at += i
		cuts = append(cuts, at)
	}
	return append(cuts, len(line))
}

func entryOf(raw []byte) (entry, bool) {
	m, err := rawjson.Object(raw)
	if err != nil {
		return entry{}, false
	}
	e := entry{raw: raw, ordinal: -1, kind: m.Text("type"), payload: m.Object("payload")}
	e.event = e.payload.Text("type")
	e.time, _ = time.Parse(time.RFC3339Nano, m.Text("timestamp"))
	if n, ok := count(m, "ordinal"); ok {
		e.ordinal = n
	}
	return e, true
}

// count returns a member that is a whole number, 0 or more.
func count(m rawjson.Members, name string) (int64, bool) {
	raw, _ := m.Get(name)
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil && n >= 0
}

// value returns a member, nil if it is missing or null.
func value(m rawjson.Members, name string) json.RawMessage {
	raw, _ := m.Get(name)
	if string(raw) == "null" {
		return nil
	}
	return raw
}

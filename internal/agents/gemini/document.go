package gemini

import (
	"bytes"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
)

// document is a file of an older version: one value on many lines, rewritten with each message. Its lines go to log.
// After its last line, its messages become turns.
type document struct {
	text     []byte
	attempts int
	over     bool // it was read, or is too large
}

const (
	maxDocument = 64 << 20
	maxAttempts = 8
)

// part reads a line of such a file. The last line is a brace at its beginning.
func (f *fold) part(s *saying, line []byte) {
	d := f.whole
	if d.over {
		return
	}
	if d.text = append(append(d.text, line...), '\n'); len(d.text) > maxDocument || d.attempts == maxAttempts {
		f.whole = &document{over: true}
		return
	}
	line = bytes.TrimRight(line, " \r")
	if string(line) != "}" && !(len(line) > 1 && line[0] == '{' && line[len(line)-1] == '}') {
		return
	}
	d.attempts++
	m, ok := objectOf(d.text)
	if !ok {
		return
	}
	f.whole = &document{over: true}
	s.Time = timeOf(m, "lastUpdated", "startTime")
	f.about.told(f, s, m)
	raw, _ := m.Get("messages")
	messages := messagesOf(raw)
	items := make([]events.Item, len(messages))
	for i, msg := range messages {
		items[i] = msg.item()
	}
	s.After = append(s.After, f.replaced("messages", agents.Whole, items))
	for i, msg := range messages {
		f.saidIn(s, i, msg)
	}
}

// saidIn reads the facts of a message of the document.
func (f *fold) saidIn(s *saying, i int, m message) {
	s.key = "/" + strconv.Itoa(i)
	f.say(s, m)
	s.key = ""
}

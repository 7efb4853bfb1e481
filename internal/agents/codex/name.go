package codex

import (
	"strings"
	"time"

	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

var _ agents.Indexer = Agent{}

// maxTitle is the maximal size of titles in lines, in bytes.
const maxTitle = 4 << 10

// IsIndex implements agents.Indexer.
func (Agent) IsIndex(name string) bool { return name == "session_index.jsonl" }

// Called implements agents.Indexer for lines {"id", "thread_name", "updated_at"}.
func (Agent) Called(line []byte) (agents.Name, bool) {
	m, err := rawjson.Object(line)
	id, title := m.Text("id"), strings.TrimSpace(m.Text("thread_name"))
	if err != nil || !isUUID(id) || title == "" || len(title) > maxTitle {
		return agents.Name{}, false
	}
	at, _ := time.Parse(time.RFC3339Nano, m.Text("updated_at"))
	return agents.Name{Session: session(id), Title: title, Time: at}, true
}

// named sets the user's name for the thread. An empty name removes it.
func (f *fold) named(s *saying) {
	title := strings.TrimSpace(s.payload.Text("thread_name"))
	if id := s.payload.Text("thread_id"); f.copied.now() || id != "" && id != f.name.thread || len(title) > maxTitle || title == f.title {
		return
	}
	f.title = title
	s.after("title", agents.Titled(title))
}

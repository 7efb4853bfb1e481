package codex

import (
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// beginning returns the facts of the first line of a file: the session's beginning and, in a file that continues it
// after a revert, the rewind. Each file of a session has the beginning, because the file before may be missing. In a
// continuing file it follows the rewind, which waits for the file before: that file knows the origin of a fork.
func (f *fold) beginning(list []entry) []agents.Fact {
	var meta rawjson.Members
	first := entry{}
	for _, e := range list {
		if first = e; e.kind == metaLine {
			meta = e.payload
			break
		}
	}
	f.copied.own(meta)
	created := agents.Fact{Key: "created", Time: first.time}
	p := f.created(meta, first.time)
	created.Payload = p
	base, hasBase := baseOf(meta)
	f.spent.based = hasBase
	if f.name.id == f.name.thread {
		if hasBase {
			p.Fork = &events.Fork{Session: session(lineage(meta, base.Stem))}
			created.Position = &base
			if id := meta.Text("forked_from_id"); id == base.Stem {
				base.Session = session(id)
			}
		}
		return []agents.Fact{created}
	}
	raw, _ := meta.Get("history_base")
	rewound := agents.Fact{Key: "rewound", Time: first.time, Payload: &events.SessionRewound{Reason: sourceReason, Raw: raw}, Position: &base}
	return []agents.Fact{rewound, created}
}

// sourceReason is the reason of a rewind: the agent did it.
const sourceReason = "source"

// lineage returns the thread that a file continues: the one in forked_from_id, else that of its base.
func lineage(meta rawjson.Members, base string) string {
	if id := meta.Text("forked_from_id"); isUUID(id) {
		return id
	}
	return base
}

// baseOf returns the position of the history that a file continues. The member thread_id has the id of a file: the
// thread's id for its first file, else the revert's. The thread may be another one, if a fork goes back beyond its
// own beginning. A file without a base has no history.
func baseOf(meta rawjson.Members) (agents.Position, bool) {
	base := meta.Object("history_base")
	id := base.Text("thread_id")
	end, ok := count(base, "end_byte_offset")
	if !ok || end == 0 || !isUUID(id) {
		return agents.Position{}, false
	}
	return agents.Position{Stem: id, End: end}, true
}

// created returns the beginning of the session.
func (f *fold) created(meta rawjson.Members, at time.Time) *events.SessionCreated {
	p := &events.SessionCreated{Kind: events.KindTranscript, CWD: meta.Text("cwd"), Project: agents.Project(meta.Object("git").Text("repository_url"), meta.Text("cwd"))}
	if began, err := time.Parse(time.RFC3339Nano, meta.Text("timestamp")); err == nil {
		at = began
	}
	if at.IsZero() {
		at = f.name.began
	}
	p.CreatedAt = events.TimestampOf(at)
	p.Settings = agents.Spell(struct {
		Agent   string `json:"agent"`
		Version string `json:"version,omitempty"`
	}{agentName, meta.Text("cli_version")})
	if id := parent(meta); id != "" && id != f.name.thread {
		p.Parent = &events.Lineage{Session: session(id)}
	}
	return p
}

// parent returns the thread that started this one: it spawned it, or its lines were copied. A fork without copies
// needs no parent.
func parent(meta rawjson.Members) string {
	ids := []string{meta.Text("parent_thread_id"), meta.Object("source").Object("subagent").Object("thread_spawn").Text("parent_thread_id")}
	if _, refers := baseOf(meta); !refers {
		ids = append(ids, meta.Text("forked_from_id"))
	}
	for _, id := range ids {
		if isUUID(id) {
			return id
		}
	}
	return ""
}

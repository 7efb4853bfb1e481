package ingest

import (
	"context"
	"encoding/hex"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/ingest/tail"
	"github.com/tallylog/tally/internal/rawjson"
)

// fieldTitle is the field with a session's title.
const fieldTitle = "title"

// wants reports whether a file is read.
func (in *Ingester) wants(root, rel string) bool {
	agent := in.sources[root].Agent
	if agent.Wants(rel) {
		return true
	}
	i, ok := agents.As[agents.Indexer](agent)
	return ok && i.IsIndex(rel)
}

// indexOf returns the reader of an index file, which holds titles of sessions. It returns false for other files.
func (in *Ingester) indexOf(f tail.File) (agents.Indexer, bool) {
	agent := in.sources[f.Root].Agent
	i, ok := agents.As[agents.Indexer](agent)
	return i, ok && i.IsIndex(f.Rel) && !agent.Wants(f.Rel)
}

// index sets the titles of sessions from an index file. It waits until no other lines arrive: a session may be in files
// that are read later, and their titles may be older.
func (in *Ingester) index(ctx context.Context, b *tail.Batch, i agents.Indexer, force bool) error {
	if !force && len(b.Lines) > 0 {
		return errAbsent
	}
	last := make(map[string]agents.Name)
	var order []string
	for _, read := range b.Lines {
		l := in.lineOf(read)
		name, ok := i.Called(l.body)
		if !ok {
			continue
		}
		if _, again := last[name.Session]; !again {
			order = append(order, name.Session)
		}
		last[name.Session] = name
	}
	for _, session := range order {
		if err := in.call(ctx, in.sources[b.File.Root].Agent, last[session]); err != nil {
			return err
		}
	}
	return nil
}

// call sets the title of a session, if it is in the log.
func (in *Ingester) call(ctx context.Context, agent agents.Agent, name agents.Name) error {
	if isThere, err := in.isThere(ctx, in.subject(name.Session)); !isThere || in.isAlone(name.Session) {
		return err
	}
	w, err := in.writer(ctx, agent, name.Session, false)
	if err != nil {
		return err
	}
	return w.end(w.call(name))
}

func (w *writer) call(name agents.Name) error {
	said := sumOf(name.Title + "\x00" + name.Time.String())
	id := idOf("index/" + hex.EncodeToString(said[:]))
	if !w.s.created || w.s.title == name.Title || w.s.has(id) {
		return nil
	}
	set := events.Fields{{Name: fieldTitle, Value: rawjson.AppendString(nil, name.Title)}}
	e, err := events.New(sourceDerived+w.s.agent.Name(), w.s.sub, &events.SessionUpdated{Set: set, Reason: reasonSource})
	if err != nil {
		return err
	}
	e.ID, e.Time = id, timeOf(name.Time)
	w.s.noteFields(set)
	return w.event(e)
}

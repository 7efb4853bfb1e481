package ingest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/ingest/tail"
)

// renamed tracks sessions that continue under another name because the folder of their project was renamed. Such a
// session keeps its id in the log.
type renamed struct {
	mu     sync.Mutex
	listed bool
	have   map[string][]string // ids of sessions, by the lasting part of the id
	is     map[string]string   // decisions, by the id that a file's name implies
}

// original returns the session of a file by its id in the log.
func (in *Ingester) original(f tail.File, is agents.File) string {
	lasting, ok := agents.As[agents.Lasting](in.sources[f.Root].Agent)
	if !ok || in.o.Sessions == nil {
		return is.Session
	}
	key := lasting.Lasts(is.Session)
	if key == "" {
		return is.Session
	}
	r := &in.renamed
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := r.is[is.Session]; ok {
		return id
	}
	if !r.list(in, lasting) {
		return is.Session
	}
	id := in.movedFrom(f, is, r.have[key])
	r.is[is.Session] = id
	if id == is.Session {
		r.have[key] = append(r.have[key], id)
	}
	return id
}

// list lists the sessions of the log, once. It returns false if the log does not answer; then nothing is decided.
func (r *renamed) list(in *Ingester, lasting agents.Lasting) bool {
	if r.listed {
		return true
	}
	have := make(map[string][]string)
	for id, err := range in.o.Sessions(context.Background()) {
		if err != nil {
			return false
		}
		if key := lasting.Lasts(id); key != "" {
			have[key] = append(have[key], id)
		}
	}
	r.have, r.is, r.listed = have, make(map[string]string), true
	return true
}

// movedFrom returns which of the sessions a file continues, else the session that its name implies. It continues a
// session whose file last had this name, or whose file is gone. A copy beside the file is a session of its own.
func (in *Ingester) movedFrom(f tail.File, is agents.File, ids []string) string {
	for _, id := range ids {
		if id == is.Session {
			return id
		}
	}
	agent := in.sources[f.Root].Agent
	for _, id := range ids {
		sub := events.Session(in.o.Namespace, id)
		if namespace, isKnown := in.home(id); isKnown && namespace != leftAlone {
			sub.Namespace = namespace
		}
		s, err := load(context.Background(), in.o.Log, agent, sub, false)
		if err != nil {
			continue
		}
		for _, had := range s.files {
			if had.Thread == agents.Main && (had.called == escapeName(is.Name) || in.isGone(f.Root, had.Name)) {
				return id
			}
		}
	}
	return is.Session
}

// isGone reports whether a folder of sessions has no file of this name.
func (in *Ingester) isGone(root, name string) bool {
	_, err := os.Lstat(filepath.Join(in.sources[root].Root, filepath.FromSlash(name)))
	return errors.Is(err, fs.ErrNotExist)
}

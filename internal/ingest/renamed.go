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

// renamed knows which sessions go on under another name, as the folder of their project was
// renamed. Such a session keeps the id that it has in the log.
type renamed struct {
	mu     sync.Mutex
	listed bool
	have   map[string][]string // ids of sessions, by what of them lasts
	is     map[string]string   // decided: by the id that a file's name says
}

// original returns the session of a file as the log calls it.
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

// list lists the sessions of the log, once; false: it does not answer, and nothing is decided.
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

// movedFrom returns which of sessions a file goes on with, else the session that its name
// says. It goes on with one whose file had this name last, or is not where it was any more: a
// copy beside it is a session of its own.
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
			if had.Thread == agents.Main && (had.called == clean(is.Name) || in.isGone(f.Root, had.Name)) {
				return id
			}
		}
	}
	return is.Session
}

// isRenamed reports whether a file is called otherwise than the log has it, in a folder that
// was renamed: then all of it is read, as its lines may name the folder.
func (in *Ingester) isRenamed(t tail.File, f *file) bool {
	_, ok := agents.As[agents.Lasting](in.sources[t.Root].Agent)
	return ok && in.o.Sessions != nil && f.called != clean(t.Rel)
}

// isGone reports whether a folder of sessions has no file of a name.
func (in *Ingester) isGone(root, name string) bool {
	_, err := os.Lstat(filepath.Join(in.sources[root].Root, filepath.FromSlash(name)))
	return errors.Is(err, fs.ErrNotExist)
}

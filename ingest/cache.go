package ingest

import (
	"context"
	"fmt"

	"github.com/tallylog/tally/agents"
	"github.com/tallylog/tally/events"
)

// Bounds of what is remembered of sessions: an id or a line takes some fifty bytes.
const (
	maxSessions = 128
	maxEntries  = 2_000_000
)

// cache has the sessions that were asked for last.
type cache struct {
	byID map[string]*session
	asks int64
}

// session returns what the log has of a session.
func (in *Ingester) session(ctx context.Context, agent agents.Agent, id string) (*session, error) {
	in.cache.asks++
	if s := in.cache.byID[id]; s != nil {
		s.used = in.cache.asks
		return s, nil
	}
	sub := events.Session(in.o.Namespace, id)
	if err := sub.Validate(); err != nil {
		return nil, err
	}
	s, err := load(ctx, in.o.Log, agent, sub, true)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", id, err)
	}
	in.cache.evict()
	if in.cache.byID == nil {
		in.cache.byID = make(map[string]*session)
	}
	s.used = in.cache.asks
	in.cache.byID[id] = s
	return s, nil
}

// forget has a session read again when it is asked for.
func (in *Ingester) forget(s *session) { delete(in.cache.byID, s.sub.ID) }

// evict makes room for a session.
func (c *cache) evict() {
	for {
		entries, oldest := 0, (*session)(nil)
		for _, s := range c.byID {
			entries += len(s.ids)
			if oldest == nil || s.used < oldest.used {
				oldest = s
			}
		}
		if oldest == nil || len(c.byID) < maxSessions && entries < maxEntries {
			return
		}
		delete(c.byID, oldest.sub.ID)
	}
}

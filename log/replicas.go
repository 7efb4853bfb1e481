package log

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Replica is a server that keeps a copy of the log, as the leader of a cluster knows it.
type Replica struct {
	Server  string // its name
	Leader  bool   // it accepts the appends
	Current bool   // it follows the leader
	Offline bool
	Lag     uint64        // operations that the leader has and the replica lacks
	Seen    time.Duration // since the leader last heard of it
}

// String returns a replica as people read it.
func (r Replica) String() string {
	state := fmt.Sprintf("not current, %d behind", r.Lag)
	switch {
	case r.Leader:
		return r.Server + " leads"
	case r.Offline:
		state = "offline"
	case r.Current && r.Lag == 0:
		return r.Server + " is current"
	case r.Current:
		return fmt.Sprintf("%s is %d behind", r.Server, r.Lag)
	}
	return fmt.Sprintf("%s is %s, seen %v ago", r.Server, state, r.Seen.Round(time.Second))
}

// Replicas returns the servers that keep the log, the leader first and then by name, and the bytes of the log on each of
// them. They are those of a server that others run; for any other log, the list is empty.
func (l *Log) Replicas(ctx context.Context) (list []Replica, bytes uint64, err error) {
	if l.js == nil || l.js.owner || l.js.via {
		return nil, 0, nil
	}
	if l.isClosed() {
		return nil, 0, l.errClosed("replicas")
	}
	active, err := l.js.info(ctx) // reloads the line if necessary
	if err != nil {
		return nil, 0, fmt.Errorf("log: replicas: %w", err)
	}
	for _, s := range l.js.line.Load().segments {
		info, err := s.info(ctx)
		if err != nil {
			return nil, 0, fmt.Errorf("log: replicas: %w", err)
		}
		bytes += info.State.Bytes
	}
	return replicasOf(active.Cluster, l.js.reads.ConnectedServerName()), bytes, nil
}

// replicasOf returns the replicas of a stream. A server without a cluster is named by its connection.
func replicasOf(c *jetstream.ClusterInfo, server string) []Replica {
	if c == nil {
		return []Replica{{Server: server, Leader: true, Current: true}}
	}
	list := make([]Replica, 0, len(c.Replicas)+1)
	for _, p := range c.Replicas {
		list = append(list, Replica{Server: p.Name, Current: p.Current, Offline: p.Offline, Lag: p.Lag, Seen: p.Active})
	}
	slices.SortFunc(list, func(a, b Replica) int { return strings.Compare(a.Server, b.Server) })
	if c.Leader != "" {
		list = slices.Insert(list, 0, Replica{Server: c.Leader, Leader: true, Current: true})
	}
	return list
}

package log

import (
	"context"
	"fmt"
)

// DurabilityError reports that a store's acknowledgements promise less than the caller asked for. Nothing was written.
type DurabilityError struct {
	Want, Have Durability
	Why        string // why they do not promise more
}

func (e *DurabilityError) Error() string {
	return fmt.Sprintf("log: open: acknowledgements are %v here, want %v at least: %s", e.Have, e.Want, e.Why)
}

// worth returns the durability of the acknowledgements of a server that others run, and why it is not higher. A server
// acknowledges before it syncs unless it is configured otherwise.
func (b *jetStream) worth(ctx context.Context, c Config) (Durability, string) {
	info := b.line.Load().active().stream.CachedInfo()
	replicas := info.Config.Replicas
	if replicas >= 3 {
		return Replicated, ""
	}
	if replicas > 1 {
		return Buffered, fmt.Sprintf("stream %s has %d replicas, of which one may fail; Replicated needs 3", info.Config.Name, replicas)
	}
	if c.Host.SyncsAlways == nil {
		return Buffered, fmt.Sprintf("stream %s has one replica, and it is unknown whether its server syncs before it acknowledges", info.Config.Name)
	}
	server := b.reads.ConnectedServerName()
	if info.Cluster != nil && info.Cluster.Leader != "" {
		server = info.Cluster.Leader
	}
	if err := c.Host.SyncsAlways(ctx, server); err != nil {
		return Buffered, fmt.Sprintf("stream %s has one replica, on %s: %v", info.Config.Name, server, err)
	}
	return Durable, fmt.Sprintf("stream %s has one replica", info.Config.Name)
}

package log

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/tallylog/tally/internal/rawjson"
)

// What the owner's service says of itself in its metadata.
const (
	metaAPI        = "tally.api"
	metaDurability = "tally.durability"
	apiVersion     = "v1"
)

// OwnerInfo is what a process that owns a store says of it to those who append by
// its service (Host.Via) and do not see its directory.
type OwnerInfo struct {
	Durability Durability
	Holes      []Hole
}

// OwnerAt asks who serves on a connection: the owner of a store (Serve), or nil if
// nobody does within a time. There, only the owner may write.
func OwnerAt(ctx context.Context, nc *nats.Conn, within time.Duration) (*OwnerInfo, error) {
	about, err := micro.ControlSubject(micro.InfoVerb, serviceName, "")
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, about, nil)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("log: %w: %v", ErrUnavailable, err)
	}
	var info micro.Info
	if err := json.Unmarshal(m.Data, &info); err != nil || info.Metadata[metaAPI] != apiVersion {
		return nil, nil // a service of the same name, and not of tally
	}
	var o OwnerInfo
	if err := o.Durability.UnmarshalText([]byte(info.Metadata[metaDurability])); err != nil {
		return nil, err
	}
	if m, err = nc.RequestWithContext(ctx, subjectHoles, nil); err != nil {
		return nil, fmt.Errorf("log: %w: %v", ErrUnavailable, err)
	}
	var known holesReply
	if err := rawjson.Unmarshal(m.Data, &known); err != nil {
		return nil, fmt.Errorf("log: %w: %v", ErrUnavailable, err)
	}
	o.Holes = known.Holes
	return &o, nil
}

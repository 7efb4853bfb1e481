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

// Keys of the metadata of the owner's service.
const (
	metaAPI        = "tally.api"
	metaDurability = "tally.durability"
	apiVersion     = "v1"
)

// OwnerInfo describes a store to processes that append through its owner's service (Host.Via) and do not see its
// directory.
type OwnerInfo struct {
	Durability Durability
	Holes      []Hole
}

// OwnerAt returns the owner that serves on a connection (Serve), or nil if none answers within a time. If there is an
// owner, only the owner may write.
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
		return nil, nil // a service of the same name that is not tally's
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

package log

import (
	"context"

	"github.com/nats-io/nats.go"
)

// NewJetStream gives tests the backend alone.
func NewJetStream(ctx context.Context, nc *nats.Conn) (Backend, error) {
	return openJetStream(ctx, nc, Config{}.withDefaults())
}

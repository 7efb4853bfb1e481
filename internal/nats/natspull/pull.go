// Package natspull checks requests for JetStream consumers from clients that do not own the store. They may only have
// pull consumers. A push consumer would deliver with the server's own rights to any subject, so a client's request is
// parsed strictly, and encoded again.
package natspull

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	maxRequest = 64 << 10
	maxIdle    = 5 * time.Minute // after which an unused consumer is deleted
)

// Request is a request for a consumer, with the members that clients may use. Requests with other members are refused.
type Request struct {
	Stream   string `json:"stream_name"`
	Config   Config `json:"config"`
	Action   string `json:"action"`
	Strictly bool   `json:"pedantic,omitempty"`
}

// Config has the members of jetstream.ConsumerConfig that select messages and their rate.
type Config struct {
	Name           string            `json:"name,omitempty"`
	Description    string            `json:"description,omitempty"`
	DeliverPolicy  string            `json:"deliver_policy,omitempty"`
	OptStartSeq    uint64            `json:"opt_start_seq,omitempty"`
	OptStartTime   *time.Time        `json:"opt_start_time,omitempty"`
	AckPolicy      string            `json:"ack_policy,omitempty"`
	AckWait        time.Duration     `json:"ack_wait,omitempty"`
	MaxDeliver     int               `json:"max_deliver,omitempty"`
	MaxAckPending  int               `json:"max_ack_pending,omitempty"`
	ReplayPolicy   string            `json:"replay_policy,omitempty"`
	FilterSubject  string            `json:"filter_subject,omitempty"`
	FilterSubjects []string          `json:"filter_subjects,omitempty"`
	HeadersOnly    bool              `json:"headers_only,omitempty"`
	MaxWaiting     int               `json:"max_waiting,omitempty"`
	MaxBatch       int               `json:"max_batch,omitempty"`
	MaxExpires     time.Duration     `json:"max_expires,omitempty"`
	MaxBytes       int               `json:"max_bytes,omitempty"`
	Inactive       time.Duration     `json:"inactive_threshold,omitempty"`
	Replicas       int               `json:"num_replicas"`
	Memory         bool              `json:"mem_storage,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
}

// Check parses a request for a consumer and bounds its values. subject is the end of the request's subject:
// <stream>.<name>[.<filter>].
func Check(subject string, body []byte) (r Request, err error) {
	if len(body) > maxRequest {
		return r, fmt.Errorf("the request has %d bytes, at most %d are allowed", len(body), maxRequest)
	}
	in := json.NewDecoder(bytes.NewReader(body))
	in.DisallowUnknownFields() // deliver_subject and durable_name among them
	if err := in.Decode(&r); err != nil {
		return r, err
	}
	if _, err := in.Token(); err != io.EOF {
		return r, errors.New("data after the JSON of the request")
	}
	c := &r.Config
	tokens := strings.SplitN(subject, ".", 3)
	switch {
	case len(tokens) < 2 || !isName(tokens[0]) || !isName(tokens[1]):
		return r, errors.New("subject: want STREAM.CONSUMER, each of 1 to 64 letters, digits, - and _")
	case r.Stream != tokens[0] || c.Name != tokens[1]:
		return r, errors.New("stream_name or name differs from the subject")
	case len(tokens) == 3 && c.FilterSubject != tokens[2]:
		return r, errors.New("filter_subject differs from the subject")
	case r.Action != "" && r.Action != "create":
		return r, errors.New("action: want create")
	case c.AckPolicy != "none":
		return r, errors.New("ack_policy: want none")
	}
	r.Action = "create" // never a change of another client's consumer
	c.Memory, c.Replicas = true, 0
	if c.Inactive <= 0 || c.Inactive > maxIdle {
		c.Inactive = maxIdle
	}
	return r, nil
}

func isName(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", r)
	})
}

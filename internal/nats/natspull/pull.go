// Package natspull says which JetStream consumers those may have who are not the owner of a
// store: such that are pulled from. A consumer delivers with the server's own rights
// wherever its configuration says, so what a stranger asks for is read strictly, and
// written anew.
package natspull

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	maxRequest = 64 << 10
	maxIdle    = 5 * time.Minute // after which a consumer that nobody asks is gone
)

// Request is a request for a consumer, as far as others may have one. Members that it
// does not name are refused.
type Request struct {
	Stream   string `json:"stream_name"`
	Config   Config `json:"config"`
	Action   string `json:"action"`
	Strictly bool   `json:"pedantic,omitempty"`
}

// Config has the members of jetstream.ConsumerConfig that say what is read and how fast.
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

// Check reads a request for a consumer, <stream>.<name>[.<filter>] being the end
// of its subject, and bounds what it asks for.
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
		return r, fmt.Errorf("there is something behind the request")
	}
	c := &r.Config
	tokens := strings.SplitN(subject, ".", 3)
	switch {
	case len(tokens) < 2 || !isName(tokens[0]) || !isName(tokens[1]):
		return r, fmt.Errorf("want a stream and a consumer's name, each of letters, digits, - and _, 64 at most")
	case r.Stream != tokens[0] || c.Name != tokens[1]:
		return r, fmt.Errorf("stream and name are not those of the subject")
	case len(tokens) == 3 && c.FilterSubject != tokens[2]:
		return r, fmt.Errorf("filter_subject is not that of the subject")
	case r.Action != "" && r.Action != "create":
		return r, fmt.Errorf("action: want create")
	case c.AckPolicy != "none":
		return r, fmt.Errorf("ack_policy: want none")
	}
	r.Action = "create" // and never a change of somebody else's
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

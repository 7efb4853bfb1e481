package log

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
)

// dedupeWindow is how long the server recognises ids by itself. It costs about 150 bytes for each id, and the server
// reads it again at every start. Beyond it the Log looks ids up.
const dedupeWindow = 2 * time.Minute

// ownerWindow is the window where an owner stores, which recognises young ids by itself: see recentIDs. It is the
// shortest one that every version of this package opens.
const ownerWindow = time.Minute

// schemaVersion is the version of the stored form, kept in the stream's metadata.
const schemaVersion = "1"

// segmentConfig returns the configuration of a segment of a line of streams: it takes every event from an offset on,
// and never removes one.
func segmentConfig(lineName string, n int, first events.Offset) jetstream.StreamConfig {
	if first == 1 {
		first = 0 // the same, and the value of streams that others created
	}
	return jetstream.StreamConfig{
		Name:               segmentName(lineName, n),
		FirstSeq:           uint64(first),
		Description:        "tally event log",
		Subjects:           []string{events.SubjectFilter},
		Retention:          jetstream.LimitsPolicy,
		Storage:            jetstream.FileStorage,
		Discard:            jetstream.DiscardNew,
		MaxMsgs:            -1,
		MaxBytes:           -1,
		MaxMsgsPerSubject:  -1,
		MaxMsgSize:         -1,
		Duplicates:         dedupeWindow,
		Replicas:           1,
		Compression:        jetstream.NoCompression,
		AllowDirect:        true,
		AllowAtomicPublish: true,
		DenyDelete:         true,
		DenyPurge:          true,
		MaxConsumers:       -1,
		Metadata:           map[string]string{"tally.schema": schemaVersion, "tally.line": lineName, "tally.segment": strconv.Itoa(n)},
	}
}

// checkStream returns a *ConfigError if the stream could lose or rewrite a record, or lacks a feature that a Log needs.
func checkStream(c jetstream.StreamConfig) error {
	closed := c.Sealed || slices.Equal(c.Subjects, []string{closedSubject(c.Name)}) // the segment is full
	for _, rule := range []struct {
		field      string
		ok         bool
		have, need any
	}{
		{"subjects", !isClosed(c) || closed, c.Subjects, "[" + events.SubjectFilter + "]"},
		{"retention", c.Retention == jetstream.LimitsPolicy, c.Retention, jetstream.LimitsPolicy},
		{"storage", c.Storage == jetstream.FileStorage, c.Storage, jetstream.FileStorage},
		{"discard", c.Discard == jetstream.DiscardNew, c.Discard, jetstream.DiscardNew},
		{"max_age", c.MaxAge == 0, c.MaxAge, 0},
		{"max_msgs_per_subject", c.MaxMsgsPerSubject <= 0, c.MaxMsgsPerSubject, -1},
		{"allow_rollup_hdrs", !c.AllowRollup, c.AllowRollup, false},
		{"allow_msg_ttl", !c.AllowMsgTTL, c.AllowMsgTTL, false},
		{"allow_msg_counter", !c.AllowMsgCounter, c.AllowMsgCounter, false},
		{"allow_msg_schedules", !c.AllowMsgSchedules, c.AllowMsgSchedules, false},
		{"deny_delete", c.DenyDelete, c.DenyDelete, true},
		{"deny_purge", c.DenyPurge, c.DenyPurge, true},
		{"persist_mode", c.PersistMode == jetstream.DefaultPersistMode, c.PersistMode, jetstream.DefaultPersistMode},
		{"mirror", c.Mirror == nil, "set", "none"},
		{"sources", len(c.Sources) == 0, "set", "none"},
		{"subject_transform", c.SubjectTransform == nil, "set", "none"},
		{"no_ack", !c.NoAck, c.NoAck, false},
		{"allow_direct", c.AllowDirect, c.AllowDirect, true},
		{"allow_atomic", c.AllowAtomicPublish, c.AllowAtomicPublish, true},
		{"duplicate_window", isClosed(c) || c.Duplicates >= 2*youngID, c.Duplicates, "at least " + (2 * youngID).String()},
		{"metadata tally.schema", c.Metadata["tally.schema"] == "" || c.Metadata["tally.schema"] == schemaVersion, c.Metadata["tally.schema"], schemaVersion},
	} {
		if !rule.ok {
			return &ConfigError{Stream: c.Name, Field: rule.field, Have: fmt.Sprint(rule.have), Need: fmt.Sprint(rule.need)}
		}
	}
	return nil
}

package events

import (
	"fmt"

	"github.com/tallylog/tally/internal/rawjson"
)

// redo is the data of a redo record (TypeUnitAppended).
type redo struct {
	Events []struct {
		Subject string `json:"subject"` // in NATS form
		Event   Raw    `json:"event"`   // CloudEvents JSON; an erased copy does not name its subject
	} `json:"events"`
}

// redo reads the data of a redo record, and the events in it.
func (e Event) redo() (r redo, copies []Event, err error) {
	if err := rawjson.Unmarshal(e.Data, &r); err != nil {
		return r, nil, dataError("data", err)
	}
	for i, c := range r.Events {
		sub, err := ParseNATS(c.Subject)
		if err != nil {
			return r, nil, fmt.Errorf("event %d: %w", i, err)
		}
		of, err := ParseJSON(sub.Namespace, c.Event)
		if err != nil {
			return r, nil, fmt.Errorf("event %d: %w", i, err)
		}
		of.Subject = sub
		copies = append(copies, of)
	}
	return r, copies, nil
}

// Copies returns the events that a redo record (TypeUnitAppended) has copies of, in their order. The error names the
// first one that is no event.
func (e Event) Copies() ([]Event, error) {
	_, copies, err := e.redo()
	return copies, err
}

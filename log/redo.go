package log

import (
	"context"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// redoSource is the source of redo records.
const redoSource = "urn:tally:log"

// redoSubject is the subject of redo records. Only the log itself writes there.
var redoSubject = events.Document("", events.KindUnit, "log")

// redoData is the data of a redo record.
type redoData struct {
	Events []redoEvent `json:"events"`
}

// redoEvent is an event of a batch. Events have the order in which they are stored.
type redoEvent struct {
	Subject string     `json:"subject"` // in NATS form
	Event   events.Raw `json:"event"`   // CloudEvents JSON
}

// redoRecord returns the redo record of a batch.
func redoRecord(parts []*appending) (events.Event, error) {
	var d redoData
	for _, p := range parts {
		for _, e := range p.events {
			raw, err := events.AppendJSON(nil, e)
			if err != nil {
				return events.Event{}, err
			}
			d.Events = append(d.Events, redoEvent{p.name, raw})
		}
	}
	data, err := rawjson.Marshal(d)
	return events.Event{Source: redoSource, Type: events.TypeUnitAppended, Subject: redoSubject, ContentType: events.ContentTypeJSON, Data: data}, err
}

// partsOf returns the appends of a batch as they were prepared when it was stored.
func partsOf(unit events.Event) ([]*appending, error) {
	copies, err := unit.Copies()
	if err != nil {
		return nil, err
	}
	var parts []*appending
	of := make(map[events.Subject]*appending)
	for _, e := range copies {
		p := of[e.Subject]
		if p == nil {
			p = &appending{sub: e.Subject, name: e.Subject.NATS()}
			of[e.Subject], parts = p, append(parts, p)
		}
		p.events = append(p.events, e)
		p.msgs = append(p.msgs, Outgoing{ID: e.MsgID(), Header: events.AppendHeader(nil, e), Data: e.Data})
	}
	return parts, nil
}

// redo appends the missing events of batches that begin behind an offset: the owner before this one ended while storing
// them, or the disk lost the end of the log. It runs before any reader. No event came to their subjects since: a batch
// keeps its turn in them until all of it is stored, and nothing is admitted while the state of the disk is unknown.
func (l *Log) redo(ctx context.Context, after events.Offset, publish publishing) error {
	// If a redo record is unreadable, its batch was acknowledged before the damage, so all events were stored.
	for rec, err := range events.Readable(l.Read(ctx, events.Range{Kind: events.KindUnit, After: after, Buffered: true})) {
		if err != nil {
			return err
		}
		if rec.Type != events.TypeUnitAppended || rec.Source != redoSource {
			continue
		}
		if err := l.redoUnit(ctx, rec, publish); err != nil {
			return fmt.Errorf("log: complete the batch at %v: %w", rec.Offset, err)
		}
	}
	return nil
}

func (l *Log) redoUnit(ctx context.Context, rec events.Record, publish publishing) error {
	parts, err := partsOf(rec.Event)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := l.complete(ctx, p, rec.Offset, publish); err != nil {
			return err
		}
	}
	return nil
}

package log

import (
	"context"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// redoSource is the source of redo records.
const redoSource = "urn:tally:log"

// redoSubject is where redo records are. Nobody else writes there.
var redoSubject = events.Document("", events.KindUnit, "log")

// redoData is what a redo record holds.
type redoData struct {
	Events []redoEvent `json:"events"`
}

// redoEvent is an event of a unit, in the order in which they are stored.
type redoEvent struct {
	Subject string     `json:"subject"` // in NATS
	Event   events.Raw `json:"event"`   // CloudEvents JSON
}

// redoRecord makes the redo record of a unit.
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

// parts gives the appends of a unit as they were prepared when it was stored.
func (d redoData) parts() ([]*appending, error) {
	var parts []*appending
	of := make(map[events.Subject]*appending)
	for i, r := range d.Events {
		sub, err := events.ParseNATS(r.Subject)
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
		e, err := events.ParseJSON(sub.Namespace, r.Event)
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
		p := of[sub]
		if p == nil {
			p = &appending{sub: sub, name: r.Subject}
			of[sub], parts = p, append(parts, p)
		}
		p.events = append(p.events, e)
		p.msgs = append(p.msgs, Outgoing{ID: e.MsgID(), Header: events.AppendHeader(nil, e), Data: e.Data})
	}
	return parts, nil
}

// redo appends what is missing of units that begin behind an offset: the owner before this
// one had begun them, or the disk lost the end of what was written. Whoever reads comes
// later. Nobody wrote to their subjects since: a turn in them lasts until all of a unit is
// stored, and nothing is admitted while it is not known what is on disk.
func (l *Log) redo(ctx context.Context, after events.Offset, publish publishing) error {
	for rec, err := range events.Readable(l.Read(ctx, events.Range{Kind: events.KindUnit, After: after, Buffered: true})) { // of a unit that was acknowledged all events were stored
		if err != nil {
			return err
		}
		if rec.Type != events.TypeUnitAppended || rec.Source != redoSource {
			continue
		}
		if err := l.redoUnit(ctx, rec, publish); err != nil {
			return fmt.Errorf("log: the unit at %v: %w", rec.Offset, err)
		}
	}
	return nil
}

func (l *Log) redoUnit(ctx context.Context, rec events.Record, publish publishing) error {
	var d redoData
	if err := rawjson.Unmarshal(rec.Data, &d); err != nil {
		return err
	}
	parts, err := d.parts()
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

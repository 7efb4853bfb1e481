package projector

import (
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// A queue is the session queue/<id>. Each turn of its thread main that has an
// [events.ItemMeta] is an item; the first turn with an id counts. What happens to an item
// is in the session item/<queue>/<id>, or in that of the queue if it is serial.

// QueueSession returns the id of the session that is a queue.
func QueueSession(queue string) string { return events.KindQueue + "/" + queue }

// ItemSession returns the id of the session that has the life of an item. The queue's id
// is escaped there, so that two items never have one session.
func ItemSession(queue, item string) string {
	return events.KindItem + "/" + events.EscapeID(queue) + "/" + item
}

// ItemOf returns the item that a session has the life of, and whether it has one.
func ItemOf(session string) (queue, item string, ok bool) {
	rest, ok := strings.CutPrefix(session, events.KindItem+"/")
	escaped, item, cut := strings.Cut(rest, "/")
	queue, err := events.UnescapeID(escaped)
	if !ok || !cut || err != nil || queue == "" || item == "" {
		return "", "", false
	}
	return queue, item, true
}

// QueueSettings are a queue's field settings. The zero value is the default.
type QueueSettings struct {
	Lease       int64  `json:"lease,omitempty"`       // of a claim, in milliseconds; 0: two minutes
	MaxAttempts int    `json:"maxAttempts,omitempty"` // of an item, then it is dead; 0: 5
	Serial      bool   `json:"serial,omitempty"`      // one claim at a time, in the order of the log; as it was created
	Dead        string `json:"dead,omitempty"`        // what a dead item is to those that come after it: hold (default, they wait) or pass

	Unknown events.Fields `json:",unknown"`
}

// PassDead lets items that come after a dead one go on as if it were done.
const PassDead = "pass"

// What a queue without settings does.
const (
	defaultLease       = 2 * time.Minute
	defaultMaxAttempts = 5
)

// LeaseTime is how long a claim is its worker's, unless it is renewed.
func (s QueueSettings) LeaseTime() time.Duration {
	if s.Lease <= 0 || s.Lease > int64(maxLease/time.Millisecond) {
		return defaultLease
	}
	return time.Duration(s.Lease) * time.Millisecond
}

// maxLease bounds a lease: a longer one is not meant.
const maxLease = 366 * 24 * time.Hour

// Attempts is how often an item is tried.
func (s QueueSettings) Attempts() int {
	if s.MaxAttempts <= 0 {
		return defaultMaxAttempts
	}
	return s.MaxAttempts
}

// Queue is what the records of a queue's session say of the queue itself.
type Queue struct {
	ID       string        `json:"id"`
	Created  events.Offset `json:"created,omitempty"`  // its session.created, 0 if there is none
	Revision events.Offset `json:"revision,omitempty"` // the newest record about its settings
	Settings QueueSettings `json:"settings"`
	OnEmpty  string        `json:"onEmpty,omitempty"` // what a worker is told that finds nothing to do
	Title    string        `json:"title,omitempty"`
	Owner    string        `json:"owner,omitempty"`
	Last     events.Offset `json:"last,omitempty"`    // its newest record
	LastRun  events.Offset `json:"lastRun,omitempty"` // the newest one about a run
	Open     string        `json:"open,omitempty"`    // of a serial queue: the item of its newest claim, until that is given up
	Void     int           `json:"void,omitempty"`    // turns of thread main that are not items, or not new ones
}

// apply folds what a record of the queue's session says of the queue itself.
func (q *Queue) apply(f Fact) {
	q.Last = f.Offset
	if f.Impossible(events.KindQueue, q.Created, 0).Invalid != nil {
		return
	}
	switch p := f.Payload.(type) {
	case *events.SessionCreated:
		q.Created, q.Revision = f.Offset, f.Offset
		first := q.Settings
		q.Settings = QueueSettingsOf(p.Settings)
		if first.Lease+int64(first.MaxAttempts) != 0 || first.Dead != "" { // an update that came first is newer knowledge
			first.Serial = q.Settings.Serial
			q.Settings = first
		}
		q.Title, q.Owner = orOldText(q.Title, p.Title), orOldText(q.Owner, p.Owner)
	case *events.SessionUpdated:
		q.Revision = f.Offset
		q.updated(p)
	case *events.RunCreated, *events.RunStarted, *events.RunProgressed, *events.RunFinished:
		q.LastRun = f.Offset
	}
}

func orOldText(old, now string) string {
	if old != "" {
		return old
	}
	return now
}

func (q *Queue) updated(p *events.SessionUpdated) {
	if raw, ok := p.Set.Get("settings"); ok {
		serial := q.Settings.Serial // claims are where they are
		q.Settings = QueueSettingsOf(raw)
		q.Settings.Serial = serial
	}
	for name, to := range map[string]*string{"onEmpty": &q.OnEmpty, "title": &q.Title, "owner": &q.Owner} {
		if raw, ok := p.Set.Get(name); ok {
			*to = "" // also if it is not a text
			if text, err := rawjson.String(raw); err == nil {
				*to = text
			}
		}
	}
}

// QueueSettingsOf reads the field settings of a queue. What is not that says nothing.
func QueueSettingsOf(raw events.Raw) QueueSettings {
	var s QueueSettings
	if len(raw) == 0 || rawjson.Unmarshal(raw, &s) != nil {
		return QueueSettings{}
	}
	return s
}

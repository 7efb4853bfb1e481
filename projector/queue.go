package projector

import (
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// A queue is the session queue/<id>. Each turn of its thread main with an [events.ItemMeta] is an item; the first turn
// with an id counts. The later events of an item are in the session item/<queue>/<id>, or, in a serial queue, in the
// queue's session.

// QueueSession returns the id of a queue's session.
func QueueSession(queue string) string { return events.KindQueue + "/" + queue }

// ItemSession returns the id of the session with the events of an item. It escapes the queue's id, so two items never
// share a session.
func ItemSession(queue, item string) string {
	return events.KindItem + "/" + events.EscapeID(queue) + "/" + item
}

// ItemOf returns the item of an item session. It returns false for other sessions.
func ItemOf(session string) (queue, item string, ok bool) {
	rest, ok := strings.CutPrefix(session, events.KindItem+"/")
	escaped, item, cut := strings.Cut(rest, "/")
	queue, err := events.UnescapeID(escaped)
	if !ok || !cut || err != nil || queue == "" || item == "" {
		return "", "", false
	}
	return queue, item, true
}

// IsItem reports whether a subject is the session of an item.
func IsItem(sub events.Subject) bool {
	_, _, ok := ItemOf(sub.ID)
	return ok && sub.IsSession()
}

// QueueSettings is the value of a queue's field settings. The zero value holds the defaults.
type QueueSettings struct {
	Lease       int64  `json:"lease,omitempty"`       // duration of a claim, in milliseconds; 0: two minutes
	MaxAttempts int    `json:"maxAttempts,omitempty"` // attempts before an item is dead; 0: 5
	Serial      bool   `json:"serial,omitempty"`      // one claim at a time, in log order; fixed when the queue is created
	Dead        string `json:"dead,omitempty"`        // effect of a dead item on the items after it: hold (default, they wait) or pass

	Unknown events.Fields `json:",unknown"`
}

// PassDead is the value of Dead that lets items after a dead item go on as if it were done.
const PassDead = "pass"

// Defaults of QueueSettings.
const (
	defaultLease       = 2 * time.Minute
	defaultMaxAttempts = 5
)

// LeaseTime returns the duration of a claim without renewal.
func (s QueueSettings) LeaseTime() time.Duration {
	if s.Lease <= 0 || s.Lease > int64(maxLease/time.Millisecond) {
		return defaultLease
	}
	return time.Duration(s.Lease) * time.Millisecond
}

// maxLease bounds a lease. A longer one is taken for a mistake.
const maxLease = 366 * 24 * time.Hour

// Attempts returns the maximum number of attempts of an item.
func (s QueueSettings) Attempts() int {
	if s.MaxAttempts <= 0 {
		return defaultMaxAttempts
	}
	return s.MaxAttempts
}

// Queue is the fold of a queue's session, without its items.
type Queue struct {
	ID       string        `json:"id"`
	Created  events.Offset `json:"created,omitempty"`  // its session.created; 0: none
	Revision events.Offset `json:"revision,omitempty"` // the newest record about its settings
	Settings QueueSettings `json:"settings"`
	OnEmpty  string        `json:"onEmpty,omitempty"` // message for a worker that finds no item
	Title    string        `json:"title,omitempty"`
	Owner    string        `json:"owner,omitempty"`
	Last     events.Offset `json:"last,omitempty"`    // its newest record
	LastRun  events.Offset `json:"lastRun,omitempty"` // its newest record of a run
	Open     string        `json:"open,omitempty"`    // of a serial queue: the item of the newest claim, until the claim ends
	Rejected int           `json:"void,omitempty"`    // turns of thread main that are not valid new items
}

// apply folds a record of the queue's session.
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
		if first.Lease+int64(first.MaxAttempts) != 0 || first.Dead != "" { // an earlier update has newer values
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
		serial := q.Settings.Serial // claims do not move to other sessions
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

// QueueSettingsOf decodes the field settings of a queue. Invalid settings count as empty.
func QueueSettingsOf(raw events.Raw) QueueSettings {
	var s QueueSettings
	if len(raw) == 0 || rawjson.Unmarshal(raw, &s) != nil {
		return QueueSettings{}
	}
	return s
}

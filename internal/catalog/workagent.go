package catalog

import (
	"context"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// Agent is a row of the list of agents.
type Agent struct {
	Namespace  string
	ID         string
	Name       string
	Owner      string
	Parent     string // session that started it
	Status     string // "": never set, meaning idle
	Reason     string // of the status
	Holder     string // holder of its lease, which may have ended
	LeaseUntil events.Timestamp
	FinishedAt events.Timestamp
	ArchivedAt events.Timestamp
	PurgedAt   events.Timestamp
	LastAt     events.Timestamp // the latest time of any record
	Head       events.Offset

	kind    string
	created events.Offset
	said    int64 // fields that are set: session.created does not override these
	gone    int64 // when its status became one of a gone agent; 0: it is not gone
}

// Fields that session.created and session.updated can both set.
const (
	titleSaid = 1 << iota
	ownerSaid
)

const agentColumns = `namespace, id, kind, created, said, title, owner, parent, status, reason, holder, lease, finished_at, archived_at, purged_at,
	gone, last_at, head_offset`

func (a *Agent) columns() []any {
	return []any{&a.Namespace, &a.ID, &a.kind, offset(&a.created), &a.said, &a.Name, &a.Owner, &a.Parent, &a.Status, &a.Reason, &a.Holder, &a.LeaseUntil,
		&a.FinishedAt, &a.ArchivedAt, &a.PurgedAt, &a.gone, &a.LastAt, offset(&a.Head)}
}

// foldAgent folds a record of an agent's session.
func (w *Work) foldAgent(ctx context.Context, id string, f projector.Fact) error {
	a := Agent{Namespace: f.Subject.Namespace, ID: id, kind: events.KindAgent}
	known, err := w.find(ctx, "SELECT "+agentColumns+" FROM agents{set} WHERE namespace=? AND id=?", []any{a.Namespace, id}, a.columns())
	if err != nil {
		return err
	}
	before := a
	a.apply(f)
	if err := w.put(ctx, "agents", valuesOf(a.columns())...); err != nil {
		return err
	}
	if err := w.agentDue(ctx, &a); err != nil {
		return err
	}
	if known && before.isGone() == a.isGone() && before.kind == a.kind {
		return nil
	}
	if err := w.leave(ctx, a.Namespace, f.Subject.ID, a.isGone()); err != nil {
		return err
	}
	return w.mourn(ctx, a.Namespace, id)
}

// isGone returns when the agent left. It returns 0 if the agent is present, or is not an agent.
func (a *Agent) isGone() int64 {
	if a.kind != events.KindAgent {
		return 0
	}
	return a.gone
}

// apply folds a record. The fields get the same values as in a projector.Ledger.
func (a *Agent) apply(f projector.Fact) {
	f = f.Impossible(a.kind, a.created, a.Head)
	a.Head, a.LastAt = f.Offset, max(a.LastAt, f.Happened())
	if f.Invalid != nil {
		return
	}
	switch p := f.Payload.(type) {
	case *events.SessionCreated:
		a.created, a.kind = f.Offset, p.Kind
		if p.Parent != nil {
			a.Parent = p.Parent.Session
		}
		a.first(&a.Name, p.Title, titleSaid)
		a.first(&a.Owner, p.Owner, ownerSaid)
	case *events.SessionUpdated:
		for _, field := range p.Set {
			a.set(field)
		}
		a.gone = since(a.gone, a.Status, f.Recorded)
	}
}

// first sets a field from session.created, unless an earlier update set it.
func (a *Agent) first(to *string, value string, bit int64) {
	if value != "" && a.said&bit == 0 {
		*to = value
		a.said |= bit
	}
}

func (a *Agent) set(field events.Field) {
	text, _ := rawjson.String(field.Value) // a non-text sets nothing
	switch field.Name {
	case "title":
		a.Name, a.said = text, saying(a.said, titleSaid, field)
	case "owner":
		a.Owner, a.said = text, saying(a.said, ownerSaid, field)
	case "status":
		a.Status = text
	case "statusReason":
		a.Reason = text
	case "finishedAt":
		a.FinishedAt = canonicalTime(text)
	case "archivedAt":
		a.ArchivedAt = canonicalTime(text)
	case "purgedAt":
		a.PurgedAt = canonicalTime(text)
	case "lease":
		a.lease(field.Value)
	}
}

// saying adds a field to the set of set fields, or removes it if its value is null.
func saying(said, bit int64, field events.Field) int64 {
	if string(field.Value) == "null" {
		return said &^ bit
	}
	return said | bit
}

// canonicalTime returns a time in canonical form, or "" if the text is not a time.
func canonicalTime(text string) events.Timestamp {
	at, ok := events.Timestamp(text).Time()
	if !ok {
		return ""
	}
	return events.TimestampOf(time.UnixMilli(millis(at)))
}

func (a *Agent) lease(value events.Raw) {
	var l *events.Lease
	a.Holder, a.LeaseUntil = "", ""
	if rawjson.Unmarshal(value, &l) == nil && l != nil {
		a.Holder, a.LeaseUntil = l.Holder, canonicalTime(string(l.Until))
	}
}

// agentDue updates when the agent needs a decision.
func (w *Work) agentDue(ctx context.Context, a *Agent) error {
	is := a.kind == events.KindAgent && a.PurgedAt == ""
	atWork := a.Holder != "" && (a.Status == "working" || a.Status == "waiting" || a.Status == "verifying")
	stopped := strings.HasPrefix(a.Status, "stopped:") && a.FinishedAt != ""
	archived := a.Status == "archived" && a.FinishedAt != "" && a.ArchivedAt != ""
	sub := events.Session(a.Namespace, agentPrefix+a.ID)
	for _, d := range []struct {
		what string
		at   events.Timestamp
		is   bool
	}{{projector.DueAgentLease, a.LeaseUntil, atWork}, {projector.DueAgentEnded, a.FinishedAt, stopped}, {projector.DueAgentArchived, a.ArchivedAt, archived}} {
		at, ok := d.at.Time()
		ms := int64(0) // a lease without an end has ended
		if ok {
			ms = at.UnixMilli()
		}
		if err := w.due(ctx, dueKey{what: d.what, subject: sub}, ms, is && d.is); err != nil {
			return err
		}
	}
	return nil
}

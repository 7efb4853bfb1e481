package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/web"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// ack is the answer to an append.
type ack struct {
	ID         string        `json:"id,omitempty"`      // of a session that was created
	Subject    string        `json:"subject,omitempty"` // of a part of an append to several
	First      events.Offset `json:"first"`
	Last       events.Offset `json:"last"`
	Durability string        `json:"durability"` // buffered, durable or replicated
	Duplicate  bool          `json:"duplicate"`
	Late       bool          `json:"late"` // stored, and without effect: it rests on something that was rewound
}

func ackOf(a log.Ack) ack {
	return ack{First: a.First, Last: a.Last, Durability: a.Durability.String(), Duplicate: a.Duplicate, Late: a.Stale}
}

// draft is an append that a request asks for.
type draft struct {
	call   *web.Call
	key    string // "": none
	seen   events.Offset
	expect log.Expect
	want   events.Offset // of the condition, for its problem
}

// draftOf reads the headers of an append to a session.
func draftOf(c *web.Call) (d draft, err error) {
	d.call = c
	if d.key, err = c.Key(); err != nil {
		return d, err
	}
	seen, err := c.Header("Tally-Seen")
	if err == nil && seen != "" {
		if d.seen, err = events.ParseOffset(seen); err != nil || d.seen > events.MaxOffset {
			err = invalid("Tally-Seen", "want an offset such as @12")
		}
	}
	if err != nil {
		return d, err
	}
	at, create, err := c.Match()
	switch {
	case create:
		d.expect = log.At(0)
	case at > 0:
		d.expect, d.want = log.Since(at, projector.MoveTypes()...), at
	}
	return d, err
}

// ready returns the event as it is appended: named by the key, and by the token's name instead of another actor.
func (d draft) ready(e events.Event, n int) (events.Event, error) {
	if err := mayAppend(d.call.Token, e); err != nil {
		return e, err
	}
	if d.key != "" {
		e.ID = fmt.Sprintf("%s.%d", d.key, n)
	}
	if d.seen > 0 {
		e = e.WithExtension(events.ExtBasis, d.seen.Padded())
	}
	if other := e.Extensions[events.ExtActor]; other != "" && other != d.call.Token.Name {
		e = e.WithExtension("onbehalfof", other)
	}
	if len(e.Data) > events.MaxData {
		return e, &log.SizeError{Index: n, What: "data", Size: len(e.Data), Max: events.MaxData}
	}
	return e.WithExtension(events.ExtActor, d.call.Token.Name), nil
}

// append appends events to a subject.
func (d draft) append(ctx context.Context, sub events.Subject, evs ...events.Event) (log.Ack, error) {
	var err error
	for i := range evs {
		if evs[i], err = d.ready(evs[i], i); err != nil {
			return log.Ack{}, err
		}
	}
	a, err := d.call.Store.Append(ctx, sub, d.expect, evs...)
	if conflict, ok := errors.AsType[*log.ConflictError](err); ok && d.expect != log.Any {
		return a, precondition(d.want, conflict.Have, err.Error())
	}
	if !events.IsStored(err) {
		return a, taken(err)
	}
	return a, nil
}

// taken returns the problems of an id that another event has, and of an event that needs a condition.
func taken(err error) error {
	e, ok := errors.AsType[*events.InvalidError](err)
	switch {
	case ok && e.Field == "id" && strings.Contains(e.Reason, "already the id"):
		return &web.Problem{Code: "conflict", Detail: e.Error()}
	case ok && e.Field == "expect":
		return &web.Problem{Code: "preconditionRequired", Detail: "such an event rests on the present state: say which one you have seen, with If-Match"}
	}
	return err
}

// answerAck sends the acknowledgement.
func answerAck(c *web.Call, status int, out ack) error {
	c.SetHeader("Tally-Offset", fmt.Sprint(uint64(out.Last)))
	c.SetHeader("Tally-Durability", out.Durability)
	return c.JSON(status, out)
}

// mayAppend refuses events for which the scope append is not enough: moves, deletions, what the store says of itself,
// and what only a reader of agents' files can know.
func mayAppend(t *web.Token, e events.Event) error {
	need := web.Append
	switch kind := e.Subject.Kind; {
	case e.Type == events.TypeSessionRewound:
		need = web.Move
	case e.Type == events.TypeSessionCreated && isFork(e.Data):
		need = web.Move
	case e.Type == events.TypeDocumentDeleted, kind == events.KindType, kind == "receipt":
		need = web.Admin
	case kind == events.KindUnit, kind == events.KindBlob:
		return invalid("subject", fmt.Sprintf("%q is a reserved kind", kind))
	case strings.HasPrefix(e.Source, "urn:tally:") && e.Source != t.Source():
		need = web.Admin
	}
	for name := range e.Extensions {
		if strings.HasPrefix(name, "tally") && name != events.ExtBasis && name != events.ExtDoc {
			need = web.Admin
		}
	}
	if !t.Has(need) {
		return &web.Problem{Code: "forbidden", Detail: "such an event needs the scope " + string(need), Members: []web.Member{{Name: "scope", Value: string(need)}}}
	}
	return nil
}

// isFork reports whether the data of session.created name a session that it continues.
func isFork(data []byte) bool {
	p, err := events.Decode(events.TypeSessionCreated, data)
	created, ok := p.(*events.SessionCreated)
	return err == nil && ok && created.Fork != nil
}

func appendTurns(c *web.Call) error {
	d, err := draftOf(c)
	if err != nil {
		return err
	}
	p := &events.TurnAppended{}
	thread := orMain(c.Query("thread"))
	if c.Media() == "application/octet-stream" {
		p.Entries = []events.Entry{{Thread: thread, Bytes: c.Body}}
	} else {
		values, err := valuesOf(c)
		if err != nil {
			return err
		}
		for _, v := range values {
			p.Entries = append(p.Entries, events.Entry{Thread: thread, Turn: v})
		}
	}
	sub := c.Store.Session(c.Path("id")).Subject()
	e, err := events.New(c.Token.Source(), sub, p)
	if err != nil {
		return err
	}
	a, err := d.append(c.Context(), sub, e)
	if err != nil {
		return err
	}
	return answerAck(c, 200, ackOf(a))
}

// valuesOf returns the JSON values of a body: those of an array, those of lines, or the only one. They keep their bytes.
func valuesOf(c *web.Call) (list []json.RawMessage, err error) {
	switch {
	case c.Media() == "application/x-ndjson":
		n := 0
		for line := range bytes.SplitSeq(c.Body, []byte("\n")) {
			n++
			line = rawjson.Trim(line)
			if len(line) == 0 {
				continue
			}
			if err := rawjson.Check(line); err != nil {
				return nil, invalid(fmt.Sprintf("line %d", n), err.Error())
			}
			list = append(list, line)
		}
	case rawjson.Begins(c.Body, '['):
		list, err = rawjson.Array(c.Body)
	default:
		list, err = []json.RawMessage{rawjson.Trim(c.Body)}, rawjson.Check(c.Body)
	}
	if err == nil && len(list) == 0 {
		err = invalid("body", "it has no value")
	}
	return list, err
}

// typed is an event in the short form: its type and data.
type typed struct {
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

// appendEvents appends events to a session: CloudEvents, or objects with type and data.
func appendEvents(c *web.Call) error {
	d, err := draftOf(c)
	if err != nil {
		return err
	}
	values, err := valuesOf(c)
	if err != nil {
		return err
	}
	if len(values) > events.MaxAppend {
		return &log.SizeError{Index: -1, What: "events", Size: len(values), Max: events.MaxAppend}
	}
	sub := c.Store.Session(c.Path("id")).Subject()
	var list []events.Event
	for i, v := range values {
		e, err := eventOf(c, sub, v)
		if err != nil {
			return at(i, err)
		}
		list = append(list, e)
	}
	a, err := d.append(c.Context(), sub, list...)
	if err != nil {
		return err
	}
	return answerAck(c, 200, ackOf(a))
}

// eventOf returns the event of a session that a value describes.
func eventOf(c *web.Call, sub events.Subject, v json.RawMessage) (events.Event, error) {
	members, err := rawjson.Object(v)
	if err != nil {
		return events.Event{}, err
	}
	isCloud := slices.ContainsFunc(members, func(m rawjson.Member) bool { return m.Name == "specversion" })
	var e events.Event
	if isCloud {
		e, err = events.ParseJSON(c.Store.Namespace(), v)
	} else {
		var short typed
		if err = rawjson.Unmarshal(v, &short); err == nil && len(members) != 2 {
			err = invalid("body", "an event has type and data, or the members of a CloudEvent")
		}
		e = events.Event{Source: c.Token.Source(), Type: short.Type, Data: short.Data}
	}
	if err == nil && e.Subject == (events.Subject{}) {
		e.Subject = sub
	}
	if err == nil && e.Subject != sub {
		err = invalid("subject", "it is not the session of the path")
	}
	return e, err
}

// at adds the index of an event to an error.
func at(i int, err error) error {
	if e, ok := errors.AsType[*events.InvalidError](err); ok {
		return &events.InvalidError{Field: fmt.Sprintf("events[%d].%s", i, e.Field), Reason: e.Reason}
	}
	return err
}

func createSession(c *web.Call) error {
	d, err := draftOf(c)
	if err != nil {
		return err
	}
	var said idOf
	if err := rawjson.Unmarshal(c.Body, &said); err != nil {
		return err
	}
	id := cmp.Or(d.key, c.Store.Log.NewID())
	if said.ID != nil {
		id = *said.ID
	}
	data, err := rawjson.DeleteMember(rawjson.Trim(c.Body), "id")
	if err == nil && said.Kind == nil {
		data, err = rawjson.SetMember(data, "kind", rawjson.AppendString(nil, events.KindOf(id)))
	}
	if err != nil {
		return err
	}
	sub := c.Store.Session(id).Subject()
	e := events.Event{Source: c.Token.Source(), Subject: sub, Type: events.TypeSessionCreated}
	d.expect = log.At(0)
	if said.CreatedAt == nil {
		if known, ok := d.created(c.Context(), sub); ok { // a repeated request has the time of the first
			data, err = rawjson.SetMember(data, "createdAt", rawjson.AppendString(nil, string(known)))
		} else {
			data, err = rawjson.SetMember(data, "createdAt", rawjson.AppendString(nil, string(events.TimestampOf(c.Store.Now()))))
		}
	}
	if err != nil {
		return err
	}
	e.Data = data
	a, err := d.append(c.Context(), sub, e)
	if p, ok := errors.AsType[*web.Problem](err); ok && p.Code == "preconditionFailed" {
		return &web.Problem{Code: "exists", Detail: "the session exists", Members: p.Members}
	}
	if err != nil {
		return err
	}
	out := ackOf(a)
	out.ID = render.ID(id)
	c.SetHeader("Location", "/v1/sessions/"+url.PathEscape(id))
	return answerAck(c, 201, out)
}

// created returns the time of the session's creation if this request has made it before.
func (d draft) created(ctx context.Context, sub events.Subject) (events.Timestamp, bool) {
	if d.key == "" {
		return "", false
	}
	for rec, err := range d.call.Store.Log.Read(ctx, events.Range{Subject: sub, Limit: 1}) {
		if err != nil || rec.ID != d.key+".0" {
			return "", false
		}
		p, err := events.DecodeAs[events.SessionCreated](rec.Event)
		if err != nil {
			return "", false
		}
		return p.CreatedAt, true
	}
	return "", false
}

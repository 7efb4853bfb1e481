package api

import (
	"net/textproto"
	"net/url"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/web"
	"github.com/tallylog/tally/log"
)

// Media types of CloudEvents. Any other type is that of the data of one event, whose attributes are headers.
const (
	structuredType = "application/cloudevents+json"
	batchType      = "application/cloudevents-batch+json"
)

// acks is the answer to events of several subjects.
type acks struct {
	Items []ack `json:"items"`
}

// takeEvents appends CloudEvents. Events of several subjects are stored all or none.
func takeEvents(c *web.Call) error {
	list, err := cloudEvents(c)
	if err != nil {
		return err
	}
	d, err := draftOf(c)
	if err != nil {
		return err
	}
	if d.key != "" || d.expect != log.Any {
		return invalid("Idempotency-Key", "CloudEvents have ids of their own, and no conditions")
	}
	var parts []log.Part
	index := make(map[events.Subject]int)
	for i, e := range list {
		if e.Subject == (events.Subject{}) {
			return at(i, invalid("subject", "missing: want session/ID or document/KIND/ID"))
		}
		if list[i], err = d.ready(e, i); err != nil {
			return err
		}
		n, ok := index[e.Subject]
		if !ok {
			n = len(parts)
			index[e.Subject] = n
			parts = append(parts, log.Part{Subject: e.Subject})
		}
		parts[n].Events = append(parts[n].Events, list[i])
	}
	if len(parts) == 1 {
		a, err := d.append(c.Context(), parts[0].Subject, parts[0].Events...)
		if err != nil {
			return err
		}
		return answerAck(c, 200, ackOf(a))
	}
	done, err := c.Store.AppendAll(c.Context(), parts...)
	if !events.IsStored(err) {
		return taken(err)
	}
	out := acks{Items: []ack{}}
	for i, a := range done {
		item := ackOf(a)
		item.Subject = parts[i].Subject.String()
		out.Items = append(out.Items, item)
	}
	return c.JSON(200, out)
}

// cloudEvents returns the events of a request.
func cloudEvents(c *web.Call) ([]events.Event, error) {
	ns := c.Store.Namespace()
	switch c.Media() {
	case structuredType:
		e, err := events.ParseJSON(ns, c.Body)
		return []events.Event{e}, err
	case batchType:
		values, err := rawjson.Array(c.Body)
		switch {
		case err != nil:
			return nil, err
		case len(values) == 0:
			return nil, invalid("body", "the batch is empty")
		case len(values) > events.MaxAppend:
			return nil, &log.SizeError{Index: -1, What: "events", Size: len(values), Max: events.MaxAppend}
		}
		list := make([]events.Event, len(values))
		for i, v := range values {
			if list[i], err = events.ParseJSON(ns, v); err != nil {
				return nil, at(i, err)
			}
		}
		return list, nil
	}
	e, err := binaryEvent(c)
	return []events.Event{e}, err
}

// binaryEvent returns the event whose attributes are headers, and whose data are the body.
func binaryEvent(c *web.Call) (events.Event, error) {
	const prefix = "Ce-"
	header := map[string][]string{"Content-Type": {c.Request.Header.Get("Content-Type")}}
	for name, values := range c.Request.Header {
		attribute, ok := strings.CutPrefix(textproto.CanonicalMIMEHeaderKey(name), prefix)
		if !ok {
			continue
		}
		if len(values) != 1 {
			return events.Event{}, invalid(strings.ToLower(attribute), "the header is given twice")
		}
		header["ce-"+strings.ToLower(attribute)] = values
	}
	if header["ce-specversion"] == nil {
		return events.Event{}, &web.Problem{Code: "unsupportedType", Detail: "want " + structuredType + ", " + batchType + ", or the headers of a CloudEvent such as ce-id"}
	}
	subject := header["ce-subject"]
	if subject == nil {
		return events.Event{}, invalid("subject", "missing: want session/ID or document/KIND/ID")
	}
	text, err := url.PathUnescape(subject[0])
	if err != nil {
		return events.Event{}, invalid("subject", "want two hex digits behind each %")
	}
	sub, err := events.ParseSubject(c.Store.Namespace(), text)
	if err != nil {
		return events.Event{}, err
	}
	return events.DecodeMessage(sub.NATS(), header, c.Body)
}

// allowEvents answers the question whether this server takes events. It never calls the address in the request.
func allowEvents(c *web.Call) error {
	c.SetHeader("Allow", "POST")
	c.SetHeader("WebHook-Allowed-Origin", "*")
	if c.Request.Header.Get("WebHook-Request-Rate") != "" {
		c.SetHeader("WebHook-Allowed-Rate", "*")
	}
	return c.Bytes(200, nil)
}

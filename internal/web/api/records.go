package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/web"
)

// recordList is a stretch of the log.
type recordList struct {
	Items []record      `json:"items"`
	Next  events.Offset `json:"next,omitempty"` // the value of after for the rest
	AsOf  events.Offset `json:"asOf"`           // the durable end of the log when it was read
}

// record is an event as CloudEvents JSON, with its offset.
type record struct {
	Offset   events.Offset    `json:"offset"`
	Recorded events.Timestamp `json:"recorded,omitempty"`
	Event    json.RawMessage  `json:"event,omitempty"`
	Damaged  bool             `json:"damaged,omitempty"` // the record cannot be read
}

// recordOf returns the JSON form of a record, or of the damage at its offset.
func recordOf(rec events.Record, err error) (record, error) {
	if damage, ok := errors.AsType[*events.DamageError](err); ok {
		return record{Offset: damage.Offset, Damaged: true}, nil
	}
	if err != nil {
		return record{}, err
	}
	b, err := events.AppendJSON(nil, rec.Event)
	return record{Offset: rec.Offset, Recorded: events.TimestampOf(rec.Recorded), Event: b}, err
}

// isShown reports whether a record belongs to the namespace that a client sees. The log keeps copies of appends to
// several subjects, of all namespaces, in records of its own.
func isShown(rec events.Record) bool { return rec.Subject.Kind != events.KindUnit }

// rangeOf returns the records that a request asks for.
func rangeOf(c *web.Call) (r events.Range, err error) {
	r.Namespace = c.Store.Namespace()
	if id := c.Path("id"); id != "" {
		r = events.Range{Subject: c.Store.Session(id).Subject()}
		if err := r.Subject.Validate(); err != nil {
			return r, err
		}
	}
	r.After, err = c.After()
	return r, err
}

func readRecords(c *web.Call) error {
	r, err := rangeOf(c)
	if err != nil {
		return err
	}
	if c.WantsStream() {
		return c.Follow(func(ctx context.Context, s *web.Stream) error { return followRecords(ctx, c.Store, r, s) })
	}
	limit, err := c.Int("limit", 100, 1, maxList)
	if err != nil {
		return err
	}
	ctx := c.Context()
	out := recordList{Items: []record{}}
	if out.AsOf, err = c.Store.Log.Durable(ctx); err != nil {
		return err
	}
	r.Upto = out.AsOf
	if r.After >= r.Upto {
		return c.JSON(200, out)
	}
	size := 0
	for rec, err := range c.Store.Log.Read(ctx, r) {
		if err == nil && !isShown(rec) {
			continue
		}
		if len(out.Items) == limit || size > maxAnswer {
			out.Next = out.Items[len(out.Items)-1].Offset
			break
		}
		item, err := recordOf(rec, err)
		if err != nil {
			return err
		}
		size += len(item.Event)
		out.Items = append(out.Items, item)
	}
	return c.JSON(200, out)
}

// followRecords sends the records of a range, and then new ones, until ctx is done.
func followRecords(ctx context.Context, st *tally.Store, r events.Range, s *web.Stream) error {
	for rec, err := range st.Tail(ctx, r) {
		switch {
		case events.IsDamage(err):
			item, _ := recordOf(rec, err)
			if !s.Send(item.Offset, "damaged", []byte("{}")) {
				return nil
			}
		case err != nil:
			if lagged, ok := errors.AsType[*tally.LaggedError](err); ok {
				s.Send(lagged.After, "lagged", []byte("{}"))
				return nil
			}
			return err
		case !isShown(rec):
		default:
			b, err := streamed(rec.Event)
			if err != nil {
				return err
			}
			if !s.Send(rec.Offset, "record", b) {
				return nil
			}
		}
	}
	return nil
}

// streamed returns the JSON of an event for a stream, which has line feeds as its only line breaks. Data with another
// one are in base64.
func streamed(e events.Event) ([]byte, error) {
	if !bytes.Contains(e.Data, []byte("\r")) {
		return events.AppendJSON(nil, e)
	}
	data := e.Data
	e.Data = nil
	b, err := events.AppendJSON(nil, e)
	if err != nil {
		return nil, err
	}
	b = append(b[:len(b)-1], `,"data_base64":"`...)
	b = base64.StdEncoding.AppendEncode(b, data)
	return append(b, `"}`...), nil
}

package log

import (
	"errors"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Subjects of the owner's service. They lie outside tally.v1, so that no stream
// stores a request.
const (
	serviceName      = "tally"
	serviceVersion   = "1.0.0"
	subjectAppend    = "tally.api.v1.append"
	subjectWatermark = "tally.api.v1.watermark"
	subjectMoved     = "tally.api.v1.watermark.moved"
	subjectHoles     = "tally.api.v1.holes"
	subjectSegments  = "tally.api.v1.segments" // published when the log continues in another stream
)

// appendRequest is an append on its way to the owner.
type appendRequest struct {
	Namespace string       `json:"namespace,omitempty"` // default: events.DefaultNamespace
	Subject   string       `json:"subject,omitempty"`   // session/<id> or document/<kind>/<id>
	Expect    *wireExpect  `json:"expect,omitempty"`    // default: anything
	Buffered  bool         `json:"buffered,omitempty"`  // answer before the sync
	Producer  string       `json:"producer,omitempty"`  // of a series of numbered requests to the subject
	Number    uint64       `json:"number,omitempty"`    // in it, from 1; with producer
	Unshown   bool         `json:"unshown,omitempty"`   // the answer does not wait for trees of files
	Events    []events.Raw `json:"events,omitempty"`    // CloudEvents JSON

	// Parts are the parts of an append to several subjects. All other members but Unshown are empty then.
	Parts []wirePart `json:"parts,omitempty"`
}

// wirePart is an append to one of several subjects, or a guard of it.
type wirePart struct {
	Namespace string       `json:"namespace,omitempty"`
	Subject   string       `json:"subject"`
	Expect    *wireExpect  `json:"expect,omitempty"`
	Events    []events.Raw `json:"events,omitempty"`
}

// wireExpect is an expectation: one of its members.
type wireExpect struct {
	At    *events.Offset `json:"at,omitempty"`
	Since *events.Offset `json:"since,omitempty"`
	Types []string       `json:"types,omitempty"` // with since
}

// appendReply is the owner's answer: an acknowledgement, or an error.
type appendReply struct {
	First      events.Offset `json:"first,omitempty"`
	Last       events.Offset `json:"last,omitempty"`
	Durability string        `json:"durability,omitempty"`
	Duplicate  bool          `json:"duplicate,omitempty"`
	Parts      []wireAck     `json:"parts,omitempty"` // of an append to several subjects; first and last are empty then
	Unshown    *wireUnshown  `json:"unshown,omitempty"`
	Error      *Failure      `json:"error,omitempty"`
}

// wireUnshown reports that trees of files do not show a stored append.
type wireUnshown struct {
	Tree    string `json:"tree"`
	Path    string `json:"path,omitempty"` // "": no single file is the reason
	Message string `json:"message"`
}

// wireUnshownOf returns the wire form of an error of a tree, nil for nil.
func wireUnshownOf(err error) *wireUnshown {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*events.TreeError](err); ok {
		return &wireUnshown{e.Tree, e.Path, e.Err.Error()}
	}
	return &wireUnshown{Message: err.Error()}
}

func (w *wireUnshown) errorOf() *events.TreeError {
	if w == nil {
		return nil
	}
	return &events.TreeError{Tree: w.Tree, Path: w.Path, Err: errors.New(w.Message)}
}

// wireAck has the offsets of a part. It is empty for a guard.
type wireAck struct {
	First     events.Offset `json:"first,omitempty"`
	Last      events.Offset `json:"last,omitempty"`
	Duplicate bool          `json:"duplicate,omitempty"`
}

// watermarkReply has the durable watermark.
type watermarkReply struct {
	Durable events.Offset `json:"durable"`
}

// holesReply lists the records that are lost.
type holesReply struct {
	Holes []Hole `json:"holes"`
}

// encodeAppend encodes a request.
func encodeAppend(p *appending) ([]byte, error) {
	w, err := wirePartOf(p)
	if err != nil {
		return nil, err
	}
	return rawjson.Marshal(appendRequest{Namespace: w.Namespace, Subject: w.Subject, Expect: w.Expect, Buffered: p.buffered, Unshown: p.unshown, Events: w.Events})
}

// encodeAppendAll encodes a request of several parts.
func encodeAppendAll(parts []*appending) ([]byte, error) {
	r := appendRequest{Parts: make([]wirePart, len(parts))}
	for i, p := range parts {
		var err error
		if r.Parts[i], err = wirePartOf(p); err != nil {
			return nil, err
		}
	}
	return rawjson.Marshal(r)
}

func wirePartOf(p *appending) (wirePart, error) {
	w := wirePart{Namespace: p.sub.Namespace, Subject: p.sub.String()}
	if !p.guarded { // else it was appended with Any, and the owner derives the guard itself
		w.Expect = wireExpectOf(p.expect)
	}
	for _, e := range p.events {
		raw, err := events.AppendJSON(nil, e)
		if err != nil {
			return w, err
		}
		w.Events = append(w.Events, raw)
	}
	return w, nil
}

// arrival is a request that arrived at the owner.
type arrival struct {
	sub      events.Subject
	expect   Expect
	events   []events.Event
	parts    []Part // of an append to several subjects; the fields above are empty then
	buffered bool
	unshown  bool
	producer string // "": the request has no number
	number   uint64

	data     []byte
	reply    string
	repeated bool // it was submitted before
}

// maxProducer bounds the name of a producer.
const maxProducer = 64

// decodeAppend decodes a request.
func decodeAppend(data []byte) (a arrival, err error) {
	var r appendRequest
	if err := rawjson.Unmarshal(data, &r); err != nil {
		return a, &events.InvalidError{Field: "request", Reason: err.Error()}
	}
	a = arrival{buffered: r.Buffered, unshown: r.Unshown, producer: r.Producer, number: r.Number, data: data}
	switch {
	case len(r.Producer) > maxProducer:
		return a, &events.InvalidError{Field: "producer", Reason: fmt.Sprintf("want at most %d bytes", maxProducer)}
	case (r.Producer == "") != (r.Number == 0):
		return a, &events.InvalidError{Field: "number", Reason: "want producer and number, from 1, or neither"}
	}
	if len(r.Parts) > 0 {
		a.parts, err = decodeParts(r)
		return a, err
	}
	p, err := wirePart{r.Namespace, r.Subject, r.Expect, r.Events}.part()
	a.sub, a.expect, a.events = p.Subject, p.Expect, p.Events
	return a, err
}

// decodeParts decodes the parts of a request.
func decodeParts(r appendRequest) ([]Part, error) {
	if r.Namespace != "" || r.Subject != "" || r.Expect != nil || len(r.Events) > 0 || r.Buffered || r.Producer != "" {
		return nil, &events.InvalidError{Field: "parts", Reason: "a request with parts has no other member"}
	}
	parts := make([]Part, len(r.Parts))
	for i, w := range r.Parts {
		var err error
		if parts[i], err = w.part(); err != nil {
			return nil, inside(fmt.Sprintf("parts[%d]", i), err)
		}
	}
	return parts, nil
}

// inside adds to an error where in a request the invalid value is.
func inside(where string, err error) error {
	if invalid, ok := errors.AsType[*events.InvalidError](err); ok {
		return &events.InvalidError{Field: where + "." + invalid.Field, Reason: invalid.Reason}
	}
	return err
}

func (w wirePart) part() (p Part, err error) {
	if p.Subject, err = events.ParseSubject(w.Namespace, w.Subject); err != nil {
		return p, err
	}
	if p.Expect, err = w.Expect.expect(); err != nil {
		return p, err
	}
	for i, raw := range w.Events {
		e, err := events.ParseJSON(p.Subject.Namespace, raw)
		if err != nil {
			return p, inside(fmt.Sprintf("events[%d]", i), err)
		}
		p.Events = append(p.Events, e)
	}
	return p, nil
}

func wireExpectOf(x Expect) *wireExpect {
	switch x.kind {
	case expectAt:
		return &wireExpect{At: &x.at}
	case expectSince:
		return &wireExpect{Since: &x.at, Types: x.list()}
	}
	return nil
}

func (w *wireExpect) expect() (Expect, error) {
	switch {
	case w == nil:
		return Any, nil
	case w.At != nil && w.Since == nil && w.Types == nil:
		return At(*w.At), nil
	case w.Since != nil && w.At == nil:
		return Since(*w.Since, w.Types...), nil
	}
	return Expect{}, &events.InvalidError{Field: "expect", Reason: "want at, or since with types"}
}

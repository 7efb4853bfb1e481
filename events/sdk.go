package events

import (
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

// FromCloudEvent converts an event of the CloudEvents SDK, in namespace ns. Its data are not copied; attributes become
// their canonical strings. An event without a subject gets the zero Subject, for the caller to fill in. Only
// specversion 1.0 is accepted.
func FromCloudEvent(ns string, ce event.Event) (Event, error) {
	if ce.Context == nil || ce.SpecVersion() != specVersion {
		return Event{}, invalid("specversion", "want %s", specVersion)
	}
	for _, name := range sortedKeys(ce.FieldErrors) {
		return Event{}, invalid(name, "%v", ce.FieldErrors[name]) // a setter failed and left an older value
	}
	e := Event{
		ID: ce.ID(), Source: ce.Source(), Type: ce.Type(), Time: ce.Time(),
		ContentType: ce.DataContentType(), DataSchema: ce.DataSchema(),
	}
	if data := ce.Data(); len(data) > 0 {
		e.Data = data
	}
	if text := ce.Subject(); text != "" {
		var err error
		if e.Subject, err = ParseSubject(ns, text); err != nil {
			return Event{}, err
		}
	}
	if err := e.takeExtensions(ce.Extensions()); err != nil {
		return Event{}, err
	}
	e.dropOwnSchema()
	return e, e.checkAttributes()
}

func (e *Event) takeExtensions(values map[string]any) error {
	for _, name := range sortedKeys(values) {
		text, err := types.Format(values[name])
		if err != nil {
			return invalid(name, "%v", err)
		}
		if e.Extensions == nil {
			e.Extensions = make(map[string]string, len(values))
		}
		e.Extensions[name] = text
	}
	return nil
}

// ToCloudEvent converts an event to one of the CloudEvents SDK. Its data are the event's own bytes: encode it with
// event.WriteJson, because json.Marshal of the SDK's event rewrites JSON data. The namespace is lost. If the SDK would
// alter the event (it respells some URIs, and trims ids), the error is an *InvalidError.
func ToCloudEvent(e Event) (event.Event, error) {
	if err := e.checkAttributes(); err != nil {
		return event.Event{}, err
	}
	ce := event.New(specVersion)
	ce.SetID(e.ID)
	ce.SetSource(e.Source)
	ce.SetType(e.Type)
	if text := e.Subject.String(); text != "" {
		ce.SetSubject(text)
	}
	if !e.Time.IsZero() {
		ce.SetTime(e.Time)
	}
	if e.ContentType != "" {
		ce.SetDataContentType(e.ContentType)
	}
	if schema := e.schema(); schema != "" {
		ce.SetDataSchema(schema)
	}
	for _, name := range sortedKeys(e.Extensions) {
		ce.SetExtension(name, e.Extensions[name])
	}
	if len(e.Data) > 0 {
		ce.DataEncoded = e.Data
		ce.DataBase64 = !e.isVerbatimJSON() || e.ContentType != "" && !isPlainJSON(e.ContentType)
	}
	return ce, e.checkConverted(ce)
}

// isPlainJSON is IsJSON by the SDK's rules: it would write data of a +json type as a string, which CloudEvents counts
// as JSON.
func isPlainJSON(contentType string) bool {
	media := mediaType(contentType)
	return media == "application/json" || media == "text/json"
}

// checkConverted refuses an event that the SDK altered.
func (e Event) checkConverted(ce event.Event) error {
	for _, a := range []struct{ name, want, have string }{
		{"id", e.ID, ce.ID()},
		{"source", e.Source, ce.Source()},
		{"type", e.Type, ce.Type()},
		{"datacontenttype", e.ContentType, ce.DataContentType()},
		{"dataschema", e.schema(), ce.DataSchema()},
	} {
		if a.want != a.have {
			return invalid(a.name, "the CloudEvents SDK respells %q as %q", a.want, a.have)
		}
	}
	if err := ce.Validate(); err != nil {
		return invalid("", "refused by the CloudEvents SDK: %v", err)
	}
	return nil
}

package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"time"
)

// Limits of one append. Larger values are kept by reference (attribute dataref).
const (
	MaxData        = 8 << 20  // bytes of an event's data
	MaxHeaders     = 32 << 10 // bytes of its headers on the wire
	MaxAppend      = 1000     // events of one append
	MaxValue       = 64 << 20 // default bound of a value kept by reference
	MaxBlobPart    = 4 << 20  // bytes of one part of a blob
	blobURNPrefix  = "urn:tally:blob:"
	ContentTypeRaw = "application/octet-stream"
)

// ContentTypeJSON is the media type of every payload but a document's.
const ContentTypeJSON = "application/json"

// Names of tally's extension attributes.
const (
	ExtActor         = "actor"         // user, agent or program id
	ExtCorrelationID = "correlationid" // run or turn
	ExtCausationID   = "causationid"   // id of the causing event
	ExtBasis         = "tallyseen"     // the basis: the offset up to which the producer had read the subject, padded
	ExtDoc           = "tallydoc"      // a document's metadata, see DocMeta
	ExtDataRef       = "dataref"       // urn:tally:blob:<sha256>, instead of data
	ExtLine          = "tallyline"     // position of a line of an agent's file: <file>:<offset>+<length>
	ExtLineOwner     = "tallyowner"    // session of the file, if the line is in another session
	ExtErased        = "tallyerased"   // id of the receipt of the erasure that removed the content; see Event.Erase
)

// Event is a CloudEvent 1.0: one fact about one subject. Its identity is
// (Subject, Source, ID): appending an identity again returns the first offset.
type Event struct {
	ID          string // a UUIDv7 unless the producer has a better one
	Source      string // URI reference of the producer
	Type        string // Type... constants, or a type of another vocabulary
	Subject     Subject
	Time        time.Time // when it happened, by the producer's clock; zero: unknown
	ContentType string    // media type of Data; "": ContentTypeJSON if there are data
	DataSchema  string    // of foreign types; for a known type it follows from the type
	Data        []byte    // exactly the producer's bytes
	Extensions  map[string]string

	made *made // set by New; else nil
}

// made records the data that New encoded and validated, and their type. While an event has these data, Validate need
// not decode them.
type made struct {
	typ  string
	data []byte
}

// isMade reports whether the event's data are the ones that New encoded for its type.
func (e Event) isMade() bool {
	m := e.made
	return m != nil && m.typ == e.Type && len(e.Data) > 0 && len(e.Data) == len(m.data) && &e.Data[0] == &m.data[0]
}

// Equal reports whether two events are equal, byte for byte.
func (e Event) Equal(o Event) bool {
	return e.ID == o.ID && e.Source == o.Source && e.Type == o.Type && e.Subject == o.Subject && e.Time.Equal(o.Time) &&
		e.ContentType == o.ContentType && e.DataSchema == o.DataSchema && bytes.Equal(e.Data, o.Data) && maps.Equal(e.Extensions, o.Extensions)
}

// New returns an event with a payload. It has no id and no time: the append sets them, or the producer with log.Stamp,
// if it may append the event again. The caller may replace its data, but must not write into them.
func New(source string, sub Subject, p Payload) (Event, error) {
	data, err := Encode(p)
	return newEvent(source, sub, p, data, err)
}

// NewVerbatim is New with encodeVerbatim, for raw fields that were already scanned.
func NewVerbatim(source string, sub Subject, p Payload) (Event, error) {
	data, err := encodeVerbatim(p)
	return newEvent(source, sub, p, data, err)
}

func newEvent(source string, sub Subject, p Payload, data []byte, err error) (Event, error) {
	if err != nil {
		return Event{}, err
	}
	typ := p.EventType()
	return Event{Source: source, Type: typ, Subject: sub, ContentType: ContentTypeJSON, Data: data, made: &made{typ, data}}, nil
}

// DerivedID returns the id of an event that follows from facts alone: the same facts give the same event.
func DerivedID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s,", len(p), p) // with a length before each, different lists never look alike
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}

// MsgID returns the Nats-Msg-Id of an event: base64url, without padding, of the first 16 bytes of SHA-256 over NATS
// subject, 0, source, 0, id. The server deduplicates over the whole stream, so with the id alone it would drop the same
// event of a second subject.
func (e Event) MsgID() string {
	subject := e.Subject.NATS()
	b := make([]byte, 0, len(subject)+len(e.Source)+len(e.ID)+2)
	b = append(append(b, subject...), 0)
	b = append(append(b, e.Source...), 0)
	sum := sha256.Sum256(append(b, e.ID...))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// Basis returns the offset up to which the producer had read the subject (ExtBasis), and whether it is set.
func (e Event) Basis() (Offset, bool) {
	text, ok := e.Extensions[ExtBasis]
	if !ok {
		return 0, false
	}
	at, err := ParseOffset(text)
	return at, err == nil
}

// WithExtension returns the event with one more extension attribute.
func (e Event) WithExtension(name, value string) Event {
	ext := make(map[string]string, len(e.Extensions)+1)
	maps.Copy(ext, e.Extensions)
	ext[name] = value
	e.Extensions = ext
	return e
}

// BlobRef returns the dataref of the content with this SHA-256, in lower-case hex.
func BlobRef(sha256hex string) string { return blobURNPrefix + sha256hex }

// ParseBlobRef returns the SHA-256 in a dataref, and false if it is not a reference to a blob.
func ParseBlobRef(ref string) (string, bool) {
	if len(ref) != len(blobURNPrefix)+64 || ref[:len(blobURNPrefix)] != blobURNPrefix {
		return "", false
	}
	sum := ref[len(blobURNPrefix):]
	return sum, isSHA256(sum)
}

// isSHA256 reports whether s is a SHA-256 in lower-case hex.
func isSHA256(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == 64
}

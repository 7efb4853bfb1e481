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

// Names of the extension attributes that tally gives a meaning to.
const (
	ExtActor         = "actor"         // who: user, agent or program id
	ExtCorrelationID = "correlationid" // run or turn
	ExtCausationID   = "causationid"   // id of the causing event
	ExtBasis         = "tallyseen"     // the offset up to which the producer knew the subject, padded
	ExtDoc           = "tallydoc"      // a document's metadata, see DocMeta
	ExtDataRef       = "dataref"       // urn:tally:blob:<sha256>, in place of data
)

// Event is a CloudEvent 1.0: one fact about one subject. Its identity is
// (Subject, Source, ID): appending an identity again returns the first offset.
type Event struct {
	ID          string // a UUIDv7 unless the producer has a better one
	Source      string // URI reference of the producer
	Type        string // Type... constants, or one of somebody else's vocabulary
	Subject     Subject
	Time        time.Time // when it happened, by the producer's clock; zero: not said
	ContentType string    // media type of Data; "": ContentTypeJSON if there are data
	DataSchema  string    // of foreign types; that of a known type follows from the type
	Data        []byte    // exactly the producer's bytes
	Extensions  map[string]string

	made *made // what New made; nil: it did not
}

// made says which data New encoded and validated, and of which type they are. An event
// that has them still need not be decoded to be validated.
type made struct {
	typ  string
	data []byte
}

// isMade reports whether the event's data are those that New made of a payload of its
// type.
func (e Event) isMade() bool {
	m := e.made
	return m != nil && m.typ == e.Type && len(e.Data) > 0 && len(e.Data) == len(m.data) && &e.Data[0] == &m.data[0]
}

// Equal reports whether two events say the same, byte for byte.
func (e Event) Equal(o Event) bool {
	return e.ID == o.ID && e.Source == o.Source && e.Type == o.Type && e.Subject == o.Subject && e.Time.Equal(o.Time) &&
		e.ContentType == o.ContentType && e.DataSchema == o.DataSchema && bytes.Equal(e.Data, o.Data) && maps.Equal(e.Extensions, o.Extensions)
}

// New makes an event of a payload. It has neither id nor time yet: appending
// gives it both, and a producer that wants to be able to append it again sets
// them first (log.Stamp). Its data may be replaced, and must not be written into.
func New(source string, sub Subject, p Payload) (Event, error) {
	data, err := Encode(p)
	return newEvent(source, sub, p, data, err)
}

// NewVerbatim is New with encodeVerbatim: for raw fields that were scanned already.
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

// DerivedID returns the id of an event that follows from facts alone, so that
// stating the same facts again is the same event.
func DerivedID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s,", len(p), p) // a length before each: no two lists of parts look alike
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}

// MsgID is the Nats-Msg-Id of an event: base64url, without padding, of the first
// 16 bytes of SHA-256 over NATS subject, 0, source, 0, id. The server
// deduplicates over the whole stream, so an id alone would swallow the same
// event for a second subject.
func (e Event) MsgID() string {
	subject := e.Subject.NATS()
	b := make([]byte, 0, len(subject)+len(e.Source)+len(e.ID)+2)
	b = append(append(b, subject...), 0)
	b = append(append(b, e.Source...), 0)
	sum := sha256.Sum256(append(b, e.ID...))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// Basis is the offset up to which the producer knew the subject (ExtSeen), and
// whether it said so.
func (e Event) Basis() (Offset, bool) {
	text, ok := e.Extensions[ExtBasis]
	if !ok {
		return 0, false
	}
	at, err := ParseOffset(text)
	return at, err == nil
}

// WithExtension returns the event with one extension attribute more.
func (e Event) WithExtension(name, value string) Event {
	ext := make(map[string]string, len(e.Extensions)+1)
	maps.Copy(ext, e.Extensions)
	ext[name] = value
	e.Extensions = ext
	return e
}

// BlobRef returns the dataref of the content with this SHA-256, in lower-case hex.
func BlobRef(sha256hex string) string { return blobURNPrefix + sha256hex }

// ParseBlobRef returns the SHA-256 that a dataref names, and whether it names one.
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

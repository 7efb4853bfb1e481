package events

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tallylog/tally/internal/rawjson"
)

// Kinds of documents that tally knows; others are allowed.
const (
	KindBlob = "blob" // id = SHA-256 of the whole content, in lower-case hex
	KindFile = "file" // a file of an imported folder, kept whole
	KindType = "type" // registers the type of events that is its id: see Type
	KindUnit = "unit" // not a document: the log's records of appends to several subjects (UnitAppended)
)

// DocMeta is a document's metadata, the value of the extension ExtDoc.
type DocMeta struct {
	Attributes map[string]string `json:"attributes,omitempty"`
	Links      []Link            `json:"links,omitempty"`
	Owner      string            `json:"owner,omitempty"`
	Layer      string            `json:"layer,omitempty"`
	Part       *Part             `json:"part,omitempty"`
	Base       Offset            `json:"base,omitempty"` // the revision this one was made from
	Title      string            `json:"title,omitempty"`
	ExpiresAt  Timestamp         `json:"expiresAt,omitempty"` // a read after this time returns not found
	Unknown    Fields            `json:",unknown"`
}

// Link points from a document to another subject.
type Link struct {
	Rel string `json:"rel"`
	To  string `json:"to"` // a subject such as session/s1
}

// Part is the part of the whole content that a revision has, from index 0.
type Part struct {
	Index  int    `json:"index"`
	Count  int    `json:"count"`
	SHA256 string `json:"sha256"` // of the whole content, hex
}

// String returns the compact JSON for the extension. It panics if Validate would refuse m.
func (m DocMeta) String() string {
	text, err := rawjson.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("events: %v", err))
	}
	return escapeNonText(string(text))
}

// escapeNonText escapes characters that JSON strings allow and attributes do not.
func escapeNonText(text string) string {
	if isText(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case isText(string(r)):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}

// ParseDocMeta parses the extension; "" is the zero DocMeta.
func ParseDocMeta(text string) (DocMeta, error) {
	var m DocMeta
	if text == "" {
		return m, nil
	}
	if err := rawjson.Unmarshal([]byte(text), &m); err != nil {
		return m, invalid(ExtDoc, "%v", err)
	}
	return m, m.Validate()
}

// Validate returns an *InvalidError for the first invalid field of m.
func (m DocMeta) Validate() error {
	for _, name := range sortedKeys(m.Attributes) {
		if !utf8.ValidString(name) || !utf8.ValidString(m.Attributes[name]) {
			return invalid(ExtDoc, "attribute %q is not UTF-8", name)
		}
	}
	if p := m.Part; p != nil && (p.Count < 1 || p.Index < 0 || p.Index >= p.Count || !isSHA256(p.SHA256)) {
		return invalid(ExtDoc, "part %d of %d, sha256 %q", p.Index, p.Count, p.SHA256)
	}
	if m.Base > MaxOffset {
		return invalid(ExtDoc, "base: %d is no offset", uint64(m.Base))
	}
	if !utf8.ValidString(m.Owner) || !utf8.ValidString(m.Layer) || !utf8.ValidString(m.Title) {
		return invalid(ExtDoc, "owner %q, layer %q or title %q is not UTF-8", m.Owner, m.Layer, m.Title)
	}
	if _, ok := m.ExpiresAt.Time(); m.ExpiresAt != "" && !ok {
		return invalid(ExtDoc, "expiresAt: %q is not an RFC 3339 time", string(m.ExpiresAt))
	}
	for i, l := range m.Links {
		if !utf8.ValidString(l.Rel) || !utf8.ValidString(l.To) {
			return invalid(ExtDoc, "links[%d] is not UTF-8", i)
		}
		if _, err := ParseSubject("", l.To); err != nil {
			return invalid(ExtDoc, "links[%d].to: %v", i, err)
		}
	}
	for _, f := range m.Unknown {
		if !utf8.ValidString(f.Name) || rawjson.Check(f.Value) != nil {
			return invalid(ExtDoc, "%q is not JSON", f.Name)
		}
	}
	return nil
}

// DocumentDeleted deletes a document: a later read returns not found, older revisions stay readable. Reason "purged"
// hides those too.
type DocumentDeleted struct {
	Reason  string `json:"reason"`
	To      DocRef `json:"to,omitempty"` // its new name, if it was renamed
	Unknown Fields `json:",unknown"`
}

// Reasons of a deletion that readers treat specially; others are kept.
const (
	ReasonPurged  = "purged"  // older revisions are hidden too
	ReasonRenamed = "renamed" // the document continues as To
	ReasonExpired = "expired"
)

func (p *DocumentDeleted) EventType() string { return TypeDocumentDeleted }

// Validate implements Payload.
func (p *DocumentDeleted) Validate() error {
	return first(required("reason", p.Reason), p.To.check("to", false))
}

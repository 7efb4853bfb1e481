package events

import (
	"fmt"

	"github.com/tallylog/tally/internal/rawjson"
)

// Kinds of documents that tally knows; others are allowed.
const (
	KindBlob = "blob" // id = SHA-256 of the whole content, in lower-case hex
	KindFile = "file" // a file of an imported folder, kept whole
)

// DocMeta is a document's metadata, the value of the extension ExtDoc.
type DocMeta struct {
	Attributes map[string]string `json:"attributes,omitempty"`
	Links      []Link            `json:"links,omitempty"`
	Owner      string            `json:"owner,omitempty"`
	Layer      string            `json:"layer,omitempty"`
	Part       *Part             `json:"part,omitempty"`
	Base       Offset            `json:"base,omitempty"` // the revision this one was made from
	Unknown    Fields            `json:",unknown"`
}

// Link points from a document to another subject.
type Link struct {
	Rel string `json:"rel"`
	To  string `json:"to"` // a subject such as session/s1
}

// Part says which part of its content a revision holds, from index 0.
type Part struct {
	Index  int    `json:"index"`
	Count  int    `json:"count"`
	SHA256 string `json:"sha256"` // of the whole content, hex
}

// String gives the compact JSON that stands in the extension.
func (m DocMeta) String() string {
	text, err := rawjson.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("events: %v", err)) // only an invalid raw value among Unknown could do this
	}
	return string(text)
}

// ParseDocMeta reads the extension; "" is the zero DocMeta.
func ParseDocMeta(text string) (DocMeta, error) {
	var m DocMeta
	if text == "" {
		return m, nil
	}
	if err := rawjson.Unmarshal([]byte(text), &m); err != nil {
		return m, invalid(ExtDoc, "%v", err)
	}
	if p := m.Part; p != nil && (p.Count < 1 || p.Index < 0 || p.Index >= p.Count || len(p.SHA256) != 64) {
		return m, invalid(ExtDoc, "part %d of %d, sha256 %q", p.Index, p.Count, p.SHA256)
	}
	for i, l := range m.Links {
		if _, err := ParseSubject("", l.To); err != nil {
			return m, invalid(ExtDoc, "links[%d].to: %v", i, err)
		}
	}
	return m, nil
}

// DocumentDeleted takes a document away: reading it afterwards is not found,
// older revisions stay readable. Reason "purged" hides those too.
type DocumentDeleted struct {
	Reason  string `json:"reason"`
	Unknown Fields `json:",unknown"`
}

// ReasonPurged is the reason of a deletion that hides older revisions too.
const ReasonPurged = "purged"

func (p *DocumentDeleted) EventType() string { return TypeDocumentDeleted }

// Validate implements Payload.
func (p *DocumentDeleted) Validate() error { return nil }

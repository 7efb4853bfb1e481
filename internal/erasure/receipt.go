package erasure

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
)

// KindReceipt is the kind of documents that record an erasure: its author, reason and scope. The document's id is the
// receipt's id.
const KindReceipt = "receipt"

// Receipt is the content of a receipt's document.
type Receipt struct {
	By        string           `json:"by,omitempty"`
	At        events.Timestamp `json:"at"`
	Reason    string           `json:"reason,omitempty"`
	Scope     string           `json:"scope"`
	Records   int              `json:"records"`
	Bytes     int              `json:"bytes"` // of content
	Subjects  []Lost           `json:"subjects"`
	More      int              `json:"moreSubjects,omitempty"` // that Subjects does not name
	Unreached []string         `json:"unreached,omitempty"`
}

// Lost is what a subject lost.
type Lost struct {
	Subject   string `json:"subject"`
	Namespace string `json:"namespace,omitempty"` // "": that of the receipt
	Records   int    `json:"records"`
	Bytes     int    `json:"bytes"`
}

// maxLost bounds the subjects that a receipt names, and maxUnreached its other lines.
const (
	maxLost      = 1000
	maxUnreached = 1000
)

// Document returns the subject of the plan's receipt.
func (p Plan) Document() events.Subject { return events.Document(p.Namespace, KindReceipt, p.Receipt) }

// Says returns the content of the plan's receipt.
func (p Plan) Says() Receipt {
	r := Receipt{By: p.By, At: events.TimestampOf(p.At), Reason: p.Reason, Scope: p.Scope, Records: len(p.Records), Unreached: p.Unreached}
	of := make(map[events.Subject]*Lost)
	for _, rec := range p.Records {
		l := of[rec.Subject]
		if l == nil {
			l = &Lost{Subject: rec.Subject.String()}
			if rec.Subject.Namespace != p.Namespace {
				l.Namespace = rec.Subject.Namespace
			}
			of[rec.Subject] = l
		}
		l.Records++
		l.Bytes += rec.Bytes
		r.Bytes += rec.Bytes
	}
	for _, l := range of {
		r.Subjects = append(r.Subjects, *l)
	}
	slices.SortFunc(r.Subjects, func(a, b Lost) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Subject, b.Subject))
	})
	if n := len(r.Subjects); n > maxLost {
		r.Subjects, r.More = r.Subjects[:maxLost], n-maxLost
	}
	if n := len(r.Unreached); n > maxUnreached {
		r.Unreached = append(slices.Clone(r.Unreached[:maxUnreached]), fmt.Sprintf("and %d more", n-maxUnreached))
	}
	return r
}

// Event returns the event that writes the plan's receipt. It follows from the plan, so that appending it again changes
// nothing.
func (p Plan) Event() (events.Event, error) {
	data, err := json.Marshal(p.Says())
	return events.Event{ID: "receipt-" + p.Receipt, Source: "urn:tally:erasure", Type: events.TypeDocumentWritten, Subject: p.Document(),
		Time: p.At.Truncate(time.Millisecond), ContentType: events.ContentTypeJSON, Data: data}, err
}

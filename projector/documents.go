package projector

import (
	"time"

	"github.com/tallylog/tally/events"
)

// DocumentQuery selects documents, as they are now. The zero value of a field asks for
// nothing: the zero query is every document of the namespace that exists.
type DocumentQuery struct {
	Namespace string // "": the namespace of whoever is asked
	Kind      string // "": every kind but blob
	Prefix    string // of the id
	Owner     string
	Layer     string
	Link      string // subject, such as document/doc/a, that a link of the document leads to
	Rel       string // of that link
	Deleted   bool   // also those that were deleted or are expired
	Newest    bool   // by the offset of the last revision, the highest first; else by kind and id
	Limit     int    // of the page; 0: no limit
	After     string // what the page before gave as its end; "": the first page
}

// DocumentListed is a document as a list has it.
type DocumentListed struct {
	Subject     events.Subject
	Title       string
	ContentType string
	Bytes       int64  // of the newest revision
	SHA256      string // of them, hex
	Owner       string
	Layer       string
	Revisions   int
	Deleted     bool
	RenamedTo   events.DocRef // of one that was deleted so
	ExpiresAt   time.Time     // zero: never
	First, Last events.Offset // of its records
	UpdatedAt   time.Time
}

package projector

import (
	"time"

	"github.com/tallylog/tally/events"
)

// DocumentQuery selects documents, as they are now. The zero value of a field asks for
// nothing: the zero query is every document of the namespace that exists.
//
// A page begins behind the last document of the one before, whatever was written
// meanwhile: by kind and id, a document that is there all the time is in exactly one
// page. With Newest none is in two, and what is written after the first page was read is
// in none.
type DocumentQuery struct {
	Namespace string // "": the namespace of whoever is asked
	Kind      string // "": every kind but blob
	Prefix    string // of the id
	Owner     string
	Layer     string
	Link      string // subject, such as document/doc/a, that a link of the document leads to, under this name or one it was renamed from
	Rel       string // of that link
	Deleted   bool   // also those that were deleted or are expired
	Newest    bool   // by DocumentListed.Last, the highest first; else by kind and id
	Limit     int    // of the page; 0: no limit
	After     string // what the page before gave as its end; "": the first page
}

// DocumentListed is a document as a list has it.
type DocumentListed struct {
	Subject     events.Subject
	Title       string // title, owner and layer are kept of one that was deleted, until it is purged
	ContentType string
	Bytes       int64  // of the newest revision
	SHA256      string // of them, hex
	Owner       string
	Layer       string
	Revisions   int // that are readable: since it was purged, if ever
	Deleted     bool
	Reason      string        // of the deletion
	RenamedTo   events.DocRef // of one that was deleted so
	ExpiresAt   time.Time     // zero: never
	First, Last events.Offset // of its records, since it was purged, if ever; Last is what a writer expects
	UpdatedAt   time.Time     // of the newest revision, by its producer's clock
}

// MaxRenames is how many renames, one after the other, are followed from one name of a
// document to another.
const MaxRenames = 32

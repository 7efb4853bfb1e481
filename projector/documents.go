package projector

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// Begin returns what the page begins behind: a document, or with Newest an offset; zero for
// the first page. An After that is not of such a list is an *events.InvalidError.
func (q DocumentQuery) Begin() (doc events.Subject, at events.Offset, err error) {
	switch isOffset := strings.HasPrefix(q.After, "@"); {
	case q.After == "":
	case isOffset && q.Newest:
		at, err = events.ParseOffset(q.After)
	case !isOffset && !q.Newest:
		doc, err = events.ParseSubject(q.Namespace, q.After)
	default:
		err = errors.New("another order")
	}
	if err != nil {
		err = &events.InvalidError{Field: "after", Reason: fmt.Sprintf("%q is not a place in this list", q.After)}
	}
	return doc, at, err
}

// Page makes a page of what was found, which is by kind and id unless the query is for the
// newest, and returns where the next one begins, "" if nothing is left for it.
func (q DocumentQuery) Page(found []DocumentListed) (list []DocumentListed, next string) {
	if q.Newest {
		slices.SortFunc(found, func(a, b DocumentListed) int { return cmp.Compare(b.Last, a.Last) })
	}
	if q.Limit <= 0 || len(found) <= q.Limit {
		return found, ""
	}
	last := found[q.Limit-1]
	if q.Newest {
		return found[:q.Limit], last.Last.String()
	}
	return found[:q.Limit], last.Subject.String()
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

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

// DocumentQuery selects documents in their current state. A zero field sets no condition: the zero query
// returns every existing document of the namespace.
//
// A page begins behind the last document of the previous page, regardless of writes in between. In the order by kind
// and id, a document that exists the whole time is in exactly one page. With Newest, no document is in two pages, and
// documents written after the first page was read are in no page.
type DocumentQuery struct {
	Namespace string // "": the namespace of the store or view that answers
	Kind      string // "": every kind but blob
	Prefix    string // of the id
	Owner     string
	Layer     string
	Link      string // subject, such as document/doc/a, that a link of the document leads to, by this name or a former name
	Rel       string // of that link
	Deleted   bool   // include deleted and expired documents
	Newest    bool   // order by DocumentListed.Last, highest first; else by kind and id
	Limit     int    // of the page; 0: no limit
	After     string // the end that the previous page returned; "": the first page
}

// Begin returns the last entry before the page: a document, or with Newest an offset. It returns zero values for the
// first page. If After is not from such a list, Begin returns an *events.InvalidError.
func (q DocumentQuery) Begin() (doc events.Subject, at events.Offset, err error) {
	switch isOffset := strings.HasPrefix(q.After, "@"); {
	case q.After == "":
	case isOffset && q.Newest:
		at, err = events.ParseOffset(q.After)
	case !isOffset && !q.Newest:
		doc, err = events.ParseSubject(q.Namespace, q.After)
	default:
		err = errors.New("page token of another order")
	}
	if err != nil {
		err = &events.InvalidError{Field: "after", Reason: fmt.Sprintf("%q is not a page token of this list", q.After)}
	}
	return doc, at, err
}

// Page makes a page of the found documents. These are sorted by kind and id, unless the query has Newest. next is where
// the next page begins, or "" for the last page.
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

// DocumentListed is an entry of a document list.
type DocumentListed struct {
	Subject     events.Subject
	Title       string // title, owner and layer of a deleted document remain until it is purged
	ContentType string
	Bytes       int64  // of the newest revision
	SHA256      string // of the newest revision, hex
	Owner       string
	Layer       string
	Revisions   int // number of readable revisions, since the last purge
	Deleted     bool
	Reason      string        // of the deletion
	RenamedTo   events.DocRef // new name, if a rename deleted the document
	ExpiresAt   time.Time     // zero: never
	First, Last events.Offset // of its records, since the last purge; a writer expects Last
	UpdatedAt   time.Time     // of the newest revision, by its producer's clock
}

// MaxRenames is the maximum number of consecutive renames that a lookup follows.
const MaxRenames = 32

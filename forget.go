package tally

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/erasure"
)

// Forget says what loses its content. One of Session, Record, Document, Before and Namespace selects it; Before and
// Namespace may be combined. Ids, types, times and lengths of records remain, and so do tokens and prices.
type Forget struct {
	Session   string        // id: all content of a session
	Thread    string        // with Session: one thread; with Turn its thread, default main
	Turn      int           // with Session: one turn in effect, from 1
	Children  bool          // with Session: also the sessions that it started, and those that they started
	Record    events.Offset // one record, of Session if that is set
	Document  string        // KIND/ID: every revision of a document, also under earlier names
	Before    time.Time     // sessions whose last record is older, by the log's time
	Namespace string        // everything in a namespace; with the others, the namespace that they are in; default that of the store
	Kinds     []string      // with Before: only sessions of these kinds

	Reason string // for the receipt
	Dry    bool   // only plan
}

// Receipt reports an erasure, or the outcome that a dry run expects. It is stored as the document receipt/ID.
type Receipt struct {
	ID        string // "": there was nothing to forget
	At        time.Time
	By        string
	Reason    string
	Scope     string
	Records   int
	Bytes     int // of content
	Subjects  []Forgotten
	Unreached []string // where the content may still be, or what could not be forgotten

	plan erasure.Plan
}

// Forgotten is what a session or document lost.
type Forgotten struct {
	Subject events.Subject
	Records int
	Bytes   int
}

// errNoErasure reports that no process can change the records of a store.
var errNoErasure = fmt.Errorf("the records of this store cannot be changed: %w", errors.ErrUnsupported)

// Forget removes content from the store for good: from the log, snapshots, views and trees. If all of it is gone
// already, the receipt has no ID and nothing is written. If the process ends meanwhile, the next owner of the store
// continues.
//
// The errors are ErrNotFound, a *KindError for what work under way needs, and an *events.InvalidError for a selection
// that says nothing or too much. If the store is on a server that others run, or in memory, the error matches
// [errors.ErrUnsupported], and comes with the receipt that a copy without the content needs: see [Receipt.Plan].
func (st *Store) Forget(ctx context.Context, f Forget) (Receipt, error) {
	in := st
	if f.Namespace != "" {
		var err error
		if in, err = st.In(f.Namespace); err != nil {
			return Receipt{}, err
		}
	}
	x := &forgetting{st: in, f: f, seed: maphash.MakeSeed(), planned: make(map[events.Offset]int), copies: make(map[uint64]int), isPlanned: make(map[events.Subject]bool), titles: make(map[events.Subject][]string)}
	plan, err := x.make(ctx)
	if err != nil || len(plan.Records) == 0 {
		return Receipt{Scope: plan.Scope, Unreached: plan.Unreached}, err
	}
	r := receiptOf(plan)
	if f.Dry {
		return r, nil
	}
	if st.config.Host.Erase == nil {
		return r, errNoErasure
	}
	if err := st.config.Host.Erase(ctx, plan); err != nil {
		return r, err
	}
	var says erasure.Receipt // the owner may have added what it did not reach
	if doc, err := in.Documents().Read(ctx, erasure.KindReceipt, r.ID); err == nil && json.Unmarshal(doc.Data, &says) == nil {
		r.Unreached = says.Unreached
	}
	return r, nil
}

// Plan returns the content of a file with which a copy leaves the content out: see tally copy.
func (r Receipt) Plan() ([]byte, error) { return r.plan.Encode() }

func receiptOf(p erasure.Plan) Receipt {
	says := p.Says()
	r := Receipt{ID: p.Receipt, At: p.At, By: p.By, Reason: p.Reason, Scope: p.Scope, Records: says.Records, Bytes: says.Bytes, Unreached: p.Unreached, plan: p}
	for _, l := range says.Subjects {
		if sub, err := events.ParseSubject(cmp.Or(l.Namespace, p.Namespace), l.Subject); err == nil {
			r.Subjects = append(r.Subjects, Forgotten{sub, l.Records, l.Bytes})
		}
	}
	return r
}

// forgetting makes a plan.
type forgetting struct {
	st   *Store
	f    Forget
	plan erasure.Plan

	seed      maphash.Seed
	planned   map[events.Offset]int // by offset: the record in the plan
	copies    map[uint64]int        // by the hash of an event's identity, likewise
	isPlanned map[events.Subject]bool
	hasLines  bool                        // a planned record is a line of an agent's file
	titles    map[events.Subject][]string // that sessions lose
}

// make plans: first the records that the caller names, then what refers to them or is named by nothing else.
func (x *forgetting) make(ctx context.Context) (erasure.Plan, error) {
	x.plan = erasure.Plan{Receipt: receiptID(), Namespace: x.st.config.Namespace, By: x.st.config.Actor, Reason: x.f.Reason,
		At: x.st.Now().UTC().Truncate(time.Millisecond)}
	if err := x.check(); err != nil {
		return x.plan, err
	}
	for _, step := range []func(context.Context) error{x.scope, x.unnamed, x.forks, x.units} {
		if err := step(ctx); err != nil {
			return x.plan, err
		}
	}
	slices.SortFunc(x.plan.Records, func(a, b erasure.Record) int { return cmp.Compare(a.Offset, b.Offset) })
	if len(x.plan.Unreached) > maxLines {
		n := len(x.plan.Unreached) - maxLines + 1
		x.plan.Unreached = append(x.plan.Unreached[:maxLines-1], fmt.Sprintf("and %d more", n))
	}
	if len(x.plan.Records) == 0 {
		return x.plan, nil
	}
	if x.hasLines {
		x.unreached("the agent's own files, if they still exist: delete them there")
	}
	x.unreached("older backups, exports and copies of the store; disks that remap blocks, such as SSDs and file systems with snapshots")
	x.unreached("kept: ids, types, times and lengths of records, tokens and prices")
	return x.plan, x.plan.Validate()
}

// receiptID returns a new id of a receipt.
func receiptID() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b [6]byte
	text := rand.Text() // 26 letters, 130 random bits
	n := uint64(0)
	for _, c := range text[:13] {
		n = n*32 + uint64(strings.IndexRune("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", c))
	}
	for i := range b {
		b[i] = letters[n%uint64(len(letters))]
		n /= uint64(len(letters))
	}
	return string(b[:])
}

// check refuses a selection that says nothing or too much.
func (x *forgetting) check() error {
	f := x.f
	said := 0
	for _, is := range []bool{f.Session != "", f.Record != 0 && f.Session == "", f.Document != "", !f.Before.IsZero(), f.Namespace != "" && f.Session == "" && f.Document == "" && f.Record == 0 && f.Before.IsZero()} {
		if is {
			said++
		}
	}
	switch {
	case said != 1:
		return &events.InvalidError{Field: "forget", Reason: "want one of a session, a record, a document, a time and a namespace"}
	case f.Session == "" && (f.Thread != "" || f.Turn != 0 || f.Children):
		return &events.InvalidError{Field: "forget", Reason: "a thread, a turn and children need a session"}
	case f.Turn < 0:
		return &events.InvalidError{Field: "turn", Reason: fmt.Sprintf("%d: want a number from 1", f.Turn)}
	case f.Record != 0 && (f.Thread != "" || f.Turn != 0 || f.Children), f.Children && (f.Thread != "" || f.Turn != 0):
		return &events.InvalidError{Field: "forget", Reason: "want one of a record, a thread or turn, and children"}
	case f.Before.IsZero() && f.Kinds != nil:
		return &events.InvalidError{Field: "kinds", Reason: "they need a time"}
	case len(f.Reason) > erasure.MaxText:
		return &events.InvalidError{Field: "reason", Reason: fmt.Sprintf("has %d bytes, at most %d are allowed", len(f.Reason), erasure.MaxText)}
	}
	return nil
}

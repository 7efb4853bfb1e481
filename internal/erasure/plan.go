// Package erasure says which records of a store lose their content, and keeps that in the store while it happens. If the
// process ends before all content is gone, the next owner of the store continues with the same plan. A plan names
// records and has nothing of their content.
package erasure

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// Plan is an erasure: what goes, and what its receipt says.
type Plan struct {
	Receipt   string    // the id of the receipt's document, and of its event: 1 to 6 of [a-z0-9]
	Namespace string    // of the receipt
	By        string    // who asked for the erasure
	Reason    string    // "": none was given
	Scope     string    // for people: the selection
	At        time.Time // when it was asked for

	// Records are the records that lose content, by offset, each once.
	Records []Record

	// Subjects are the subjects that are folded again, each once: those of Records, and forks of them. A fork follows
	// its parent, because its views copy from those of the parent.
	Subjects []events.Subject

	// Unreached lists, one line each, where the content may still be.
	Unreached []string
}

// Record is a record that loses content. A lost record loses the bytes that are left of it.
type Record struct {
	Offset  events.Offset
	Subject events.Subject
	Bytes   int // that it loses, for the receipt

	// Turns are the entries of tally.turn.appended.v1, or the items of tally.thread.replaced.v1 in the order of its
	// data, that lose their turns, by index. nil: the record loses all content.
	Turns []int

	// Remains is what remains of data that the event keeps by reference (events.ExtDataRef), because the content that they
	// are in may go too. nil: the data are in the record, or the owner of the store finds out.
	Remains []byte

	// Copies are the copies that a redo record (events.TypeUnitAppended) has of erased records. nil: all copies lose
	// all content.
	Copies []Copy
}

// Copy is a copy of an event in a redo record.
type Copy struct {
	Index   int    // in the record's events
	Turns   []int  // as in Record
	Remains []byte // as in Record
}

// Bounds of a plan. A larger erasure is several plans.
const (
	MaxRecords = 1_000_000
	MaxTurns   = 100_000 // of one record or copy
	MaxCopies  = 10_000  // of one record
	MaxText    = 4096    // bytes of By, Reason, Scope and of a line of Unreached
	MaxLines   = 10_000  // of Unreached

	maxReceipt = 6 // as events.Event.Erase requires
)

// Validate returns an error that names the first wrong field.
func (p Plan) Validate() error {
	switch id := p.Receipt; {
	case id == "" || len(id) > maxReceipt || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "":
		return fmt.Errorf("receipt %q: want 1 to %d of [a-z0-9]", id, maxReceipt)
	case p.At.IsZero():
		return errors.New("at: missing")
	case len(p.Records) == 0 || len(p.Records) > MaxRecords:
		return fmt.Errorf("records: there are %d, want 1 to %d", len(p.Records), MaxRecords)
	case len(p.Unreached) > MaxLines:
		return fmt.Errorf("unreached: there are %d lines, at most %d are allowed", len(p.Unreached), MaxLines)
	}
	if err := events.ValidateNamespace(p.Namespace); err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	for _, text := range append([]string{p.By, p.Reason, p.Scope}, p.Unreached...) {
		if len(text) > MaxText {
			return fmt.Errorf("%.40q...: a text has %d bytes, at most %d are allowed", text, len(text), MaxText)
		}
	}
	return p.validateRecords()
}

func (p Plan) validateRecords() error {
	seen := make(map[events.Subject]bool)
	for i, s := range p.Subjects {
		if err := s.Validate(); err != nil {
			return fmt.Errorf("subjects[%d]: %w", i, err)
		}
		if seen[s] {
			return fmt.Errorf("subjects[%d]: %s occurs twice", i, s)
		}
		seen[s] = true
	}
	var before events.Offset
	for _, r := range p.Records {
		if r.Offset <= before {
			return fmt.Errorf("records: %v follows %v: want ascending offsets", r.Offset, before)
		}
		before = r.Offset
		if err := r.validate(); err != nil {
			return fmt.Errorf("records: %v: %w", r.Offset, err)
		}
		if !seen[r.Subject] && r.Subject.Kind != events.KindUnit {
			return fmt.Errorf("records: %v: subjects lacks %s", r.Offset, r.Subject)
		}
	}
	return nil
}

func (r Record) validate() error {
	if err := r.Subject.Validate(); err != nil {
		return err
	}
	if r.Bytes < 0 || r.Copies != nil && r.Turns != nil || len(r.Copies) > MaxCopies {
		return fmt.Errorf("bytes, turns and copies do not agree")
	}
	before := -1
	for _, c := range r.Copies {
		if c.Index <= before {
			return fmt.Errorf("copy %d follows %d: want ascending indexes", c.Index, before)
		}
		before = c.Index
		if err := validateTurns(c.Turns); err != nil {
			return fmt.Errorf("copy %d: %w", c.Index, err)
		}
	}
	return validateTurns(r.Turns)
}

func validateTurns(turns []int) error {
	if len(turns) > MaxTurns || turns != nil && len(turns) == 0 {
		return fmt.Errorf("there are %d turns, want 1 to %d", len(turns), MaxTurns)
	}
	before := -1
	for _, n := range turns {
		if n <= before {
			return fmt.Errorf("turn %d follows %d: want ascending indexes", n, before)
		}
		before = n
	}
	return nil
}

// Find returns the plan's record at an offset.
func (p Plan) Find(at events.Offset) (Record, bool) {
	i, ok := slices.BinarySearchFunc(p.Records, at, func(r Record, at events.Offset) int { return cmp.Compare(r.Offset, at) })
	if !ok {
		return Record{}, false
	}
	return p.Records[i], true
}

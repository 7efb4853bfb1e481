package ingest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
)

// Kept is a file of a session in the log.
type Kept struct {
	Name        string // last name, relative to the agent's root
	Stem        string
	Thread      string // see agents.File
	Session     string // owner of the file
	Size        int64  // in bytes, before redaction
	Generations int    // number of times its content was replaced
	Redacted    int    // number of lines with redactions
	Erased      int    // number of lines whose content was erased
	Missing     int64  // number of bytes that were never stored
	lines       []storedLine
	subs        []events.Subject // sessions with its lines
	src         Reader
}

// Files returns the files of a session in the log, ordered by session and stem. They have their last content that was
// read, regardless of later removals and rewinds. A file with lines of several sessions is returned whole for each of
// them.
func Files(ctx context.Context, src Reader, agent agents.Agent, sub events.Subject) ([]Kept, error) {
	s, err := load(ctx, src, agent, sub, false)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", sub.ID, err)
	}
	list := s.kept(src)
	for _, owner := range slices.Sorted(maps.Keys(s.owners)) {
		of, err := load(ctx, src, agent, events.Session(sub.Namespace, owner), false)
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", owner, err)
		}
		list = append(list, of.kept(src)...)
	}
	return list, nil
}

// kept returns the session's own files.
func (s *sessionState) kept(src Reader) (list []Kept) {
	for _, f := range s.files {
		k := Kept{Name: f.Name, Stem: f.Stem, Thread: f.Thread, Session: s.sub.ID, Size: f.end(), Generations: f.gen, lines: f.lines, subs: s.subjects(), src: src}
		var end int64
		for i := range f.lines {
			l := &f.lines[i]
			k.Missing += l.Start - end
			end = l.End
			if l.redacted {
				k.Redacted++
			}
			if l.isErased {
				k.Erased++
			}
		}
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b Kept) int { return cmp.Compare(a.Stem, b.Stem) })
	return list
}

// Line returns the position of a line in the file, by the offset of its record. It returns false if the record is not a
// line of the file.
func (k *Kept) Line(at events.Offset) (agents.Span, bool) {
	i := slices.IndexFunc(k.lines, func(l storedLine) bool { return l.at == at })
	if i < 0 {
		return agents.Span{}, false
	}
	return k.lines[i].Span, true
}

// Offsets lists the records of its lines, in file order.
func (k *Kept) Offsets() []events.Offset {
	list := make([]events.Offset, len(k.lines))
	for i := range k.lines {
		list[i] = k.lines[i].at
	}
	return list
}

// IsRedacted reports whether a record is a line that was redacted before it was stored.
func IsRedacted(rec events.Record) bool {
	if !strings.HasPrefix(rec.Source, sourceLines) || !bytes.Contains(rec.Data, []byte(`"redacted":`)) {
		return false
	}
	l, ok := lineIn(rec, agents.Span{})
	return ok && l.redacted > 0
}

// Write writes the file from the log, line by line: byte for byte the original, except for redactions, erased lines, which
// are {}, and missing bytes.
func (k *Kept) Write(ctx context.Context, w io.Writer) error {
	next, left := 0, k.lines
	write := func(rec events.Record) error {
		if len(left) == 0 || rec.Offset != left[0].at {
			return nil
		}
		l, ok := lineIn(rec, left[0].Span)
		if !ok {
			return fmt.Errorf("%s: record %s has no line of the file any more", k.Name, rec.Offset)
		}
		next, left = next+1, left[1:]
		for _, part := range [][]byte{[]byte(l.before), l.body, []byte(l.eol)} {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return nil
	}
	for len(left) > 0 { // several times if another program stored later lines first
		was := next
		var err error
		err2 := merged(ctx, k.src, k.subs, left[0].at-1, k.last(left), func(rec events.Record) bool {
			err = write(rec)
			return err == nil && len(left) > 0
		})
		if err := errors.Join(err, err2); err != nil {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
		if next == was {
			return fmt.Errorf("%s: the log has only %d of %d lines", k.Name, next, len(k.lines))
		}
	}
	return nil
}

// last returns the offset up to which lines are in log order.
func (k *Kept) last(lines []storedLine) events.Offset {
	last := lines[0].at
	for i := range lines {
		if lines[i].at < last {
			break
		}
		last = lines[i].at
	}
	return last
}

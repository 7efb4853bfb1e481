package ingest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/tallylog/tally/agents"
	"github.com/tallylog/tally/events"
)

// Kept is a file of a session as the log has it.
type Kept struct {
	Name        string // below the agent's root, as it was called last
	Stem        string
	Thread      string // as agents.File has it
	Size        int64  // in bytes, before anything was redacted
	Generations int    // how often its content was replaced
	Redacted    int    // lines in which something was made unreadable
	Missing     int64  // bytes that never came into the log
	lines       []place
	sub         events.Subject
	src         Reader
}

// Files returns the files that an agent keeps a session in, as far as the log has them, by
// stem. They are what they were when they were read last, whatever became of them and
// wherever the session went back to.
func Files(ctx context.Context, src Reader, agent agents.Agent, sub events.Subject) ([]Kept, error) {
	s, err := load(ctx, src, agent, sub, false)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", sub.ID, err)
	}
	var list []Kept
	for _, f := range s.files {
		k := Kept{Name: f.Name, Stem: f.Stem, Thread: f.Thread, Size: f.end(), Generations: f.gen, lines: f.lines, sub: sub, src: src}
		var end int64
		for i := range f.lines {
			l := &f.lines[i]
			k.Missing += l.Start - end
			end = l.End
			if l.redacted {
				k.Redacted++
			}
		}
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b Kept) int { return cmp.Compare(a.Stem, b.Stem) })
	return list, nil
}

// Write writes the file, line after line as they are read from the log: byte for byte what
// it was, but for what was redacted or is missing.
func (k *Kept) Write(ctx context.Context, w io.Writer) error {
	if len(k.lines) == 0 {
		return nil
	}
	next := 0
	r := events.Range{Subject: k.sub, After: k.lines[0].at - 1, Upto: k.lines[len(k.lines)-1].at}
	for rec, err := range k.src.Read(ctx, r) {
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", k.Name, err)
		case rec.Offset != k.lines[next].at:
			continue
		}
		l, ok := lineIn(rec, k.lines[next].Span)
		if !ok {
			return fmt.Errorf("%s: %s is no line any more", k.Name, rec.Offset)
		}
		for _, part := range [][]byte{[]byte(l.before), l.body, []byte(l.eol)} {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		if next++; next == len(k.lines) {
			return nil
		}
	}
	return fmt.Errorf("%s: the log has %d of %d lines", k.Name, next, len(k.lines))
}

package sessiondir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
)

// Limits beyond which growth is not computed and the whole file is written: that needs less memory.
const (
	maxGrownRecords = 1024
	maxGrownBytes   = 1 << 20
)

// appended reads the records of a session after an offset up to another one and passes the appended turns to visit.
// It returns false if a record neither appends turns nor has a type that no file shows, or if the spelling of a file
// changed.
func appended(ctx context.Context, src layouts.Source, sub events.Subject, after, upto events.Offset, unshown []string, visit func(f projector.Fact, p *events.TurnAppended) bool) (bool, error) {
	if after >= upto {
		return true, nil
	}
	l := src.Loader()
	records, size := 0, 0
	for rec, err := range l.Source.Read(ctx, events.Range{Subject: sub, After: after, Upto: upto}) {
		isTurn := err == nil && rec.Type == events.TypeTurnAppended
		if isTurn {
			rec, err = l.Whole(ctx, rec)
		}
		if err != nil {
			return false, err
		}
		records, size = records+1, size+len(rec.Data)
		switch {
		case records > maxGrownRecords || size > maxGrownBytes:
			return false, nil
		case !isTurn && slices.Contains(unshown, rec.Type):
			continue
		}
		f := projector.Decode(rec)
		p, ok := f.Payload.(*events.TurnAppended)
		if !ok || len(p.Formats) > 0 || !visit(f, p) {
			return false, nil
		}
	}
	return true, nil
}

// Grown lists the turns that were added to a thread.
type Grown struct {
	Had   int // number of turns before
	Turns []projector.Turn
	Last  events.Offset // of the last record of the session that may have changed the thread
}

// GrownSince returns the turns that a thread gained since an offset. It returns false if anything else may have
// changed, except by events of types that no file shows.
func GrownSince(ctx context.Context, src layouts.Source, o *projector.Outline, since events.Offset, thread string, unshown ...string) (g Grown, ok bool, err error) {
	if len(o.Damaged()) > 0 {
		return g, false, nil
	}
	said := 0
	ok, err = appended(ctx, src, o.Subject(), since, o.Offset(), unshown, func(_ projector.Fact, p *events.TurnAppended) bool {
		for _, e := range p.Entries {
			if e.Thread == thread {
				said++
			}
		}
		return true
	})
	if err != nil || !ok {
		return g, false, err
	}
	n := o.Len(thread)
	if g.Turns, err = o.Turns(ctx, thread, n-said, n); err != nil {
		return g, false, err
	}
	for len(g.Turns) > 0 && g.Turns[0].Offset <= since { // the other turns that were appended had no effect
		g.Turns = g.Turns[1:]
	}
	g.Had, g.Last = n-len(g.Turns), o.Offset()
	return g, true, nil
}

// Next returns the turns that the thread gained after the offset since, at which g was computed. It does not load the
// session; src reads the log up to a fixed offset. Next returns false in the cases of GrownSince, if another thread
// grew, and if only the session's state can tell whether a turn has an effect.
func (g Grown) Next(ctx context.Context, src layouts.Source, sub events.Subject, since events.Offset, thread string, unshown ...string) (Grown, bool, error) {
	next := Grown{Had: g.Had + len(g.Turns), Last: g.Last}
	upto := src.Loader().Upto
	if upto == 0 {
		return next, false, nil
	}
	ok, err := appended(ctx, src, sub, since, upto, unshown, func(f projector.Fact, p *events.TurnAppended) bool {
		// A turn has no effect if it pins a missing turn, or if its producer had not read a removal. Nothing was
		// removed since Last.
		if seen, said := f.Basis(); said && seen < g.Last || f.Invalid != nil || len(p.Pins)+len(p.ThreadMeta) > 0 {
			return false
		}
		for name, th := range f.Brings() {
			if name != thread {
				return false
			}
			next.Turns = append(next.Turns, th.Turns...)
		}
		next.Last = f.Offset
		return true
	})
	return next, ok, err
}

// Known returns g without its turns, as the start for Next.
func (g Grown) Known() Grown { return Grown{Had: g.Had + len(g.Turns), Last: g.Last} }

// MoreLines returns the bytes that a file of lines, written by LinesWriter, has after the first n lines. n is at
// least 1, because a file without lines may be missing.
func MoreLines(f events.FileFormat, n int, more []events.Raw, compact bool) ([]byte, error) {
	if n == 0 {
		return nil, errors.New("no line to continue from")
	}
	var b bytes.Buffer
	out := LinesWriter{W: &b, Format: f, n: n}
	for _, raw := range more {
		if err := out.Turn(raw, compact); err != nil {
			return nil, err
		}
	}
	if b.Len() == 0 {
		return nil, nil
	}
	// The end of the old last line now separates it from the next line.
	ending := Ending(f)
	if ending != "" && ending != out.separator() {
		return nil, fmt.Errorf("a file that ends in %q", ending)
	}
	if err := out.End(); err != nil {
		return nil, err
	}
	return b.Bytes()[len(ending):], nil
}

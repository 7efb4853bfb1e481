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

// Of more than this a growth is not made: what is written of a whole file is not in memory.
const (
	mostGrownRecords = 1024
	mostGrownBytes   = 1 << 20
)

// appended reads the records of a session after an offset up to another one. It is false unless
// they append turns, and are of types that no file shows; and if a file is spelled in another way
// since.
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
		case records > mostGrownRecords || size > mostGrownBytes:
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

// Grown is what a thread of a session gained.
type Grown struct {
	Had   int // turns before
	Turns []projector.Turn
	Last  events.Offset // of the last record of the session that may have moved turns
}

// GrownSince returns what a thread gained since an offset. It is false if anything else may have
// changed since, but for events of types that no file shows.
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
	for len(g.Turns) > 0 && g.Turns[0].Offset <= since { // as many were said and had no effect
		g.Turns = g.Turns[1:]
	}
	g.Had, g.Last = n-len(g.Turns), o.Offset()
	return g, true, nil
}

// Next returns what the thread gained since an offset, as of which that was found out, without a
// look at the session: src is as of an offset. It is false as GrownSince is, if only the session
// can tell what has an effect, and if another thread gained something.
func (g Grown) Next(ctx context.Context, src layouts.Source, sub events.Subject, since events.Offset, thread string, unshown ...string) (Grown, bool, error) {
	next := Grown{Had: g.Had + len(g.Turns), Last: g.Last}
	upto := src.Loader().Upto
	if upto == 0 {
		return next, false, nil
	}
	ok, err := appended(ctx, src, sub, since, upto, unshown, func(f projector.Fact, p *events.TurnAppended) bool {
		// A turn has an effect but if it pins what is not there, or if its producer did not know
		// that something was taken back: nothing was since Last.
		if seen, said := f.Seen(); said && seen < g.Last || f.Invalid != nil || len(p.Pins)+len(p.ThreadMeta) > 0 {
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

// Known is it without its turns, to go on with.
func (g Grown) Known() Grown { return Grown{Had: g.Had + len(g.Turns), Last: g.Last} }

// MoreLines returns what a file of lines, written by LinesWriter, has behind the first n. There is
// one at least: a file without lines may not be there.
func MoreLines(f events.FileFormat, n int, more []events.Raw, compact bool) ([]byte, error) {
	if n == 0 {
		return nil, errors.New("there was no line")
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
	// What stood behind the last line that there was stands between it and the next one.
	ending := Ending(f)
	if ending != "" && ending != out.separator() {
		return nil, fmt.Errorf("a file that ends in %q", ending)
	}
	if err := out.End(); err != nil {
		return nil, err
	}
	return b.Bytes()[len(ending):], nil
}

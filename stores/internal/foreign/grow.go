package foreign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/projector"
)

// Grown is a session of which turns are all that is new since an offset: none of those before was
// taken away, and no file is spelled in another way.
type Grown struct {
	*projector.Outline
	since events.Offset
	said  map[string]int // turns of threads that were appended since; some may have no effect
}

// Of more than this a growth is not made: what is written of a whole file is not in memory.
const (
	mostGrownRecords = 1024
	mostGrownBytes   = 1 << 20
)

// GrownSince reports whether nothing but turns is new in a session since an offset, beside events
// of other types that no file of it shows.
func GrownSince(ctx context.Context, src formats.Source, o *projector.Outline, since events.Offset, unshown ...string) (*Grown, bool, error) {
	if len(o.Damaged()) > 0 {
		return nil, false, nil
	}
	g := &Grown{o, since, make(map[string]int)}
	if o.Offset() <= since {
		return g, true, nil
	}
	l := src.Loader()
	records, size := 0, 0
	for rec, err := range l.Source.Read(ctx, events.Range{Subject: o.Subject(), After: since, Upto: o.Offset()}) {
		isTurn := err == nil && rec.Type == events.TypeTurnAppended
		if isTurn {
			rec, err = l.Whole(ctx, rec)
		}
		if err != nil {
			return nil, false, err
		}
		records, size = records+1, size+len(rec.Data)
		switch {
		case records > mostGrownRecords || size > mostGrownBytes || !isTurn && !slices.Contains(unshown, rec.Type):
			return nil, false, nil
		case !isTurn:
			continue
		}
		p, ok := projector.Decode(rec).Payload.(*events.TurnAppended)
		if !ok || len(p.Formats) > 0 {
			return nil, false, nil
		}
		for _, e := range p.Entries {
			g.said[e.Thread]++
		}
	}
	return g, true, nil
}

// Turns returns the turns that a thread has more of than it had, and how many it had.
func (g *Grown) Turns(ctx context.Context, thread string) (had int, more []projector.Turn, err error) {
	n := g.Len(thread)
	list, err := g.Outline.Turns(ctx, thread, n-g.said[thread], n)
	if err != nil {
		return 0, nil, err
	}
	for len(list) > 0 && list[0].Offset <= g.since { // as many had no effect
		list = list[1:]
	}
	return n - len(list), list, nil
}

// MoreLines returns what a file of lines has behind the first n, of which there is one at least.
// A format must have been spelled as LinesWriter does it.
func MoreLines(f events.FileFormat, n int, more []events.Raw, compact bool) ([]byte, error) {
	if n == 0 {
		return nil, errors.New("a file without lines may not be there")
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

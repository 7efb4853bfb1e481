package reads

import (
	"context"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/projector"
)

// StripQuery asks for the strip of a session.
type StripQuery struct {
	Session string
	Bins    int // the most bins; 0: 400
}

// Limits of a strip.
const (
	defaultBins = 400
	maxBins     = 2000
)

// Strip is a session as a picture: consecutive bins of about as many records each.
type Strip struct {
	Bins []Bin         `json:"bins"`
	AsOf events.Offset `json:"asOf"` // up to which the strip is complete

	Cursor projector.Cursor `json:"-"` // of AsOf
}

// Bin is the sum of what a session has at consecutive offsets, in effect or not.
type Bin struct {
	From    events.Offset    `json:"from"` // a multiple of 64
	To      events.Offset    `json:"to"`   // the first offset behind the bin
	Records int              `json:"records"`
	User    int              `json:"user"`   // turns with words of a user
	Model   int              `json:"model"`  // turns with words of a model
	Tools   int              `json:"tools"`  // calls of tools
	Errors  int              `json:"errors"` // results of calls that failed
	Bytes   int64            `json:"bytes"`  // of the turns
	At      events.Timestamp `json:"at"`     // the latest time of a record
}

// Strip returns the strip of a session, from the views. A session that the views do not have has no bins.
func (r Reader) Strip(ctx context.Context, q StripQuery) (Strip, error) {
	if q.Bins < 0 || q.Bins > maxBins {
		return Strip{}, &events.InvalidError{Field: "bins", Reason: fmt.Sprintf("%d: want a number from 1 to %d", q.Bins, maxBins)}
	}
	bins := q.Bins
	if bins == 0 {
		bins = defaultBins
	}
	activity, err := catalog.OpenActivity(ctx, r.Views.Dir)
	if err != nil {
		return Strip{}, err
	}
	defer activity.Close()
	s := Strip{Bins: []Bin{}}
	if s.Cursor, err = r.Views.AsOf(ctx, activity.Standing); err != nil {
		return Strip{}, err
	}
	s.AsOf = s.Cursor.Offset
	var blocks []catalog.StripBlock
	total := 0
	for b, err := range activity.Strip(ctx, r.Namespace, q.Session) {
		if err != nil {
			return Strip{}, err
		}
		blocks, total = append(blocks, b), total+b.Records
	}
	each := (total + bins - 1) / bins
	for _, b := range blocks {
		if last := len(s.Bins) - 1; last < 0 || s.Bins[last].Records >= each {
			s.Bins = append(s.Bins, Bin{From: b.First})
		}
		s.Bins[len(s.Bins)-1].add(b)
	}
	return s, nil
}

// add adds a block to a bin.
func (n *Bin) add(b catalog.StripBlock) {
	n.To = b.First + catalog.StripOffsets
	n.Records += b.Records
	n.User += b.User
	n.Model += b.Model
	n.Tools += b.Tool
	n.Errors += b.Error
	n.Bytes += b.Bytes
	n.At = max(n.At, b.At)
}

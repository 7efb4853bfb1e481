package projector

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// cannotList returns why the lists of an event cannot be assembled after the last record, or "".
func (t *Timeline) cannotList(p events.Payload) string {
	lists := events.ListsOf(p)
	for _, pointer := range sortedKeys(lists) {
		for _, piece := range lists[pointer] {
			if n := t.had(piece.Thread); piece.To > n {
				return fmt.Sprintf("lists turns up to %d of thread %q, which has %d", piece.To, piece.Thread, n)
			}
		}
	}
	return ""
}

// Whole returns a record with all references resolved: data stored by reference, and arrays of its raw value that are
// turns of its session (events.Lists). A record without references is returned unchanged. If content is unavailable,
// the error is a *events.DamageError of the record.
func (l *Loader) Whole(ctx context.Context, rec events.Record) (events.Record, error) {
	rec, err := Resolve(ctx, l.Source, rec, l.maxValue())
	if err != nil || rec.Type == events.TypeTurnAppended {
		return rec, err
	}
	p := Decode(rec).Payload
	lists := events.ListsOf(p)
	if len(lists) == 0 {
		return rec, nil
	}
	o, err := l.Outline(ctx, rec.Subject, rec.Offset)
	if err = Tolerate(err); err != nil {
		return rec, err
	}
	name, raw := rawOf(p)
	raw, err = lists.Fill(raw, l.maxValue(), func(piece events.Piece) ([]events.Raw, error) { return o.piece(ctx, rec.Offset, piece) })
	if err != nil {
		return rec, Unfilled(rec.Offset, err)
	}
	data, err := rawjson.SetMember(rec.Data, name, raw)
	if err == nil {
		data, err = rawjson.DeleteMember(data, "lists")
	}
	if err != nil {
		return rec, &events.DamageError{Offset: rec.Offset, Err: err}
	}
	rec.Data = data
	return rec, nil
}

// Unfilled converts the error of events.Lists.Fill for the record at an offset. If the record itself is at fault, for
// example because its value is too large, the result is a *events.DamageError.
func Unfilled(at events.Offset, err error) error {
	if own, ok := errors.AsType[*events.InvalidError](err); ok {
		return &events.DamageError{Offset: at, Err: errors.New(own.Field + ": " + own.Reason)}
	}
	return err
}

// rawOf returns the raw value that contains the lists, and the name of its member.
func rawOf(p events.Payload) (name string, raw events.Raw) {
	switch p := p.(type) {
	case *events.RunStarted:
		return "raw", p.Raw
	case *events.RunProgressed:
		return "raw", p.Raw
	case *events.RunFinished:
		return "result", p.Result
	case *events.CheckpointSaved:
		return "raw", p.Raw
	}
	return "", nil
}

// piece reads the turns of a piece, for the record at an offset.
func (o *Outline) piece(ctx context.Context, at events.Offset, p events.Piece) ([]events.Raw, error) {
	turns, err := o.Turns(ctx, p.Thread, p.From, p.To)
	if err != nil {
		return nil, err
	}
	if len(turns) != p.To-p.From {
		return nil, &events.DamageError{Offset: at, Err: fmt.Errorf("it lists turns %d to %d of thread %q, which has %d", p.From, p.To, p.Thread, o.Len(p.Thread))}
	}
	raws := make([]events.Raw, len(turns))
	for i, t := range turns {
		if raws[i] = t.Raw; t.Raw == nil {
			return nil, &events.DamageError{Offset: at, Err: fmt.Errorf("it lists turn %d of thread %q, which is no JSON", p.From+i, p.Thread)}
		}
	}
	return raws, nil
}

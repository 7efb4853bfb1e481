package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
)

// One series has at most so much: what a crash leaves of it are the first events.
const (
	seriesEvents = events.MaxAppend
	seriesBytes  = 4 << 20
)

// writer appends to a session.
type writer struct {
	in     *Ingester
	ctx    context.Context
	own    *session // whose file is dealt with
	s      *session // to which the series goes: own, or one in which lines of the file stand
	force  bool     // what is not in the log does not come
	series []events.Event
	size   int
	lines  []written
}

// written is a line of the series.
type written struct {
	index int // of its event
	file  *file
	line  int // of the file's
}

// event adds an event, which has its id, to the series.
func (w *writer) event(e events.Event) error {
	if len(w.series) == seriesEvents || len(w.series) > 0 && w.size+len(e.Data) > seriesBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	e = w.in.o.Log.Stamp(e) // once: the same bytes each time they are tried
	w.series = append(w.series, e)
	w.size += len(e.Data)
	w.s.ids[sumOf(e.ID)] = struct{}{}
	if w.own != w.s {
		w.own.ids[sumOf(e.ID)] = struct{}{}
	}
	return nil
}

// to has what follows go to a session, "" being the file's own. That one says first in
// which sessions lines of its files stand, so that they are found.
func (w *writer) to(f *file, id string) error {
	if id == "" {
		id = w.own.sub.ID
	}
	if id == w.s.sub.ID {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	if w.s != w.own {
		w.in.give(w.s, nil)
		w.s = w.own
	}
	if id == w.own.sub.ID {
		return nil
	}
	if err := w.joined(f, id); err != nil {
		return err
	}
	s, err := w.in.session(w.ctx, w.own.agent, events.Session(w.own.sub.Namespace, id), w.own.sub, true)
	if err == nil {
		w.s = s
	}
	return err
}

// joined notes that lines of a file stand in another session.
func (w *writer) joined(f *file, id string) error {
	if slices.Contains(w.own.others, id) {
		return nil
	}
	if !w.own.created {
		p := &events.SessionCreated{Kind: events.KindTranscript, CreatedAt: events.TimestampOf(w.in.o.Log.Now()), Settings: events.Raw(`{"agent":"` + w.own.agent.Name() + `"}`)}
		e, err := events.New(sourceDerived+w.own.agent.Name(), w.own.sub, p)
		if err != nil {
			return err
		}
		e.ID = idOf(f.Stem + "/created")
		if err := w.event(e); err != nil {
			return err
		}
		w.own.created = true
	}
	list, err := rawjson.Marshal(append(slices.Clone(w.own.others), id))
	if err != nil {
		return err
	}
	if err := w.update(f, events.Fields{{Name: fieldSessions, Value: list}}); err != nil {
		return err
	}
	return w.flush()
}

// fact adds what follows from a line, if it is not there.
func (w *writer) fact(f *file, n following) error {
	if err := w.to(f, n.session); err != nil {
		return err
	}
	if w.s.has(n.id) {
		return nil
	}
	if cost, ok := n.Payload.(*events.CostAccrued); ok && cost.Response == "" && f.past[n.sum] {
		return nil // counted when the line stood elsewhere
	}
	p, err := w.payload(f, n)
	if p == nil || err != nil {
		return err
	}
	e, err := events.New(sourceDerived+w.s.agent.Name(), w.s.sub, p)
	if err != nil { // an agent says what cannot be stored: its line is there all the same
		w.in.once(Problem{Root: f.root, File: f.Name, Session: f.Session, Reason: err.Error()})
		return nil
	}
	if updated, ok := p.(*events.SessionUpdated); ok {
		w.s.noteFields(updated.Set)
	}
	e.ID, e.Time = n.id, timeOf(n.Time)
	if created, ok := p.(*events.SessionCreated); ok && e.Time.IsZero() {
		n.time, _ = created.CreatedAt.Time()
	}
	for _, at := range []time.Time{n.time, f.lastAt} {
		if e.Time.IsZero() {
			e.Time = timeOf(at)
		}
	}
	return w.event(e)
}

// flush appends the series.
func (w *writer) flush() error {
	if len(w.series) == 0 {
		return nil
	}
	expect := log.At(w.s.last)
	ack, added, err := w.append(expect)
	if events.IsDamage(err) && added == 0 {
		ack, added, err = w.append(log.Any) // lines are taken whatever was lost of the session
	}
	w.in.count(func(s *Status) { s.Events += added })
	if err != nil {
		return fmt.Errorf("session %s: %w", w.s.sub.ID, err)
	}
	w.placed(ack)
	if w.s.first == 0 {
		w.s.first = ack.First
	}
	w.in.count(func(s *Status) {
		s.Lines += len(w.lines)
		for _, l := range w.lines {
			at := l.file.lines[l.line].Span
			s.Bytes += at.End - at.Start
		}
	})
	w.s.last = ack.Last
	for i := range w.series {
		w.s.count(&w.series[i])
	}
	clear(w.series)
	w.series, w.size, w.lines = w.series[:0], 0, w.lines[:0]
	return nil
}

// append appends the series until the log takes it, or says why it never will.
func (w *writer) append(expect log.Expect) (ack log.Ack, added int, err error) {
	err = w.in.patiently(w.ctx, func() error {
		var n int
		var err error
		ack, n, err = w.in.o.Log.AppendSeries(w.ctx, w.s.sub, expect, w.series...)
		added += n
		return w.in.unshown(err)
	})
	return ack, added, err
}

// unshown reports that files of a tree do not show what was appended. The lines are stored, so
// there is no error to act on.
func (in *Ingester) unshown(err error) error {
	if err != nil && events.IsStored(err) {
		in.onceBy(err.Error(), Problem{Reason: err.Error(), Taken: true})
		return nil
	}
	return err
}

// patiently asks the log for something until it answers, or says why it never will.
func (in *Ingester) patiently(ctx context.Context, ask func() error) error {
	for attempt := 0; ; attempt++ {
		err := ask()
		if err == nil || !isWait(err) || ctx.Err() != nil {
			in.blocked(nil)
			return err
		}
		in.blocked(err)
		pause(ctx, attempt)
	}
}

// isWait reports whether the same series may be taken later.
func isWait(err error) bool {
	for _, e := range []error{log.ErrFull, log.ErrQuota, log.ErrUnavailable, log.ErrUnknown, log.ErrBusy} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// blocked notes whether the log takes anything, and tells if that is news.
func (in *Ingester) blocked(err error) {
	isNews := false
	in.count(func(s *Status) {
		isNews = (err != nil) != (s.Blocked != nil)
		if err != nil && isNews {
			s.Since = in.o.now()
		}
		s.Blocked = err
	})
	if isNews && in.o.Blocked != nil {
		in.o.Blocked()
	}
}

// placed notes where the lines of the series stand in the log. If appends of others stand
// between them, that is read when it is asked for.
func (w *writer) placed(ack log.Ack) {
	isOne := int(ack.Last-ack.First) == len(w.series)-1
	for _, l := range w.lines {
		if isOne {
			l.file.lines[l.line].at = ack.First + events.Offset(l.index)
		} else if w.own.blurred == 0 {
			w.own.blurred = ack.First
		}
	}
}

// focus reads where the lines stand of which that is not known.
func (s *session) focus(ctx context.Context, src Reader) error {
	if s.blurred == 0 {
		return nil
	}
	err := merged(ctx, src, s.subjects(), s.blurred-1, 0, func(rec events.Record) bool {
		if rec.Source != sourceLines+s.agent.Name() {
			return true
		}
		name, at, ok := parse(rec.Extensions[extLine])
		for _, f := range s.files {
			i := sort.Search(len(f.lines), func(i int) bool { return f.lines[i].Start >= at.Start })
			if ok && clean(f.Name) == name && i < len(f.lines) && f.lines[i].at == 0 && f.lines[i].Span == at {
				f.lines[i].at = rec.Offset
			}
		}
		return true
	})
	if err == nil {
		s.blurred = 0
	}
	return err
}

// writer returns what appends to a session.
func (in *Ingester) writer(ctx context.Context, agent agents.Agent, id string, force bool) (*writer, error) {
	sub := in.subject(id)
	s, err := in.session(ctx, agent, sub, sub, true)
	if err != nil {
		return nil, err
	}
	return &writer{in: in, ctx: ctx, own: s, s: s, force: force}, nil
}

// end ends what was done with a session, and gives it back.
func (w *writer) end(err error) error {
	if err == nil {
		err = w.flush()
	}
	if w.s != w.own {
		w.in.give(w.s, err)
	}
	w.in.give(w.own, err)
	return err
}

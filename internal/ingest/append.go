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

// Bounds of one series. After a crash the log has its first events.
const (
	seriesEvents = events.MaxAppend
	seriesBytes  = 4 << 20
)

// writer appends to a session.
type writer struct {
	in     *Ingester
	ctx    context.Context
	own    *sessionState // session of the file
	s      *sessionState // target of the series: own, or another session with lines of the file
	force  bool          // missing references will not arrive
	series []events.Event
	size   int
	lines  []written
}

// written is a line of the series.
type written struct {
	index int // of its event in the series
	file  *fileState
	line  int // index in the file's lines
}

// event adds an event to the series. The event must have its id.
func (w *writer) event(e events.Event) error {
	if len(w.series) == seriesEvents || len(w.series) > 0 && w.size+len(e.Data) > seriesBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	e = w.in.o.Log.Stamp(e) // stamped once, so each attempt sends the same bytes
	w.series = append(w.series, e)
	w.size += len(e.Data)
	w.s.ids[sumOf(e.ID)] = struct{}{}
	if w.own != w.s {
		w.own.ids[sumOf(e.ID)] = struct{}{}
	}
	return nil
}

// to selects the session of the following events. "" is the file's own session. That session first records which other
// sessions have lines of its files, so that the lines can be found.
func (w *writer) to(f *fileState, id string) error {
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

// joined records that another session has lines of a file.
func (w *writer) joined(f *fileState, id string) error {
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

// fact adds an event derived from a line, if the session does not have it.
func (w *writer) fact(f *fileState, n following) error {
	if err := w.to(f, n.session); err != nil {
		return err
	}
	if w.s.has(n.id) {
		return nil
	}
	if cost, ok := n.Payload.(*events.CostAccrued); ok && cost.Response == "" && f.past[n.sum] {
		return nil // counted when the line was at another position
	}
	p, err := w.payload(f, n)
	if p == nil || err != nil {
		return err
	}
	e, err := events.New(sourceDerived+w.s.agent.Name(), w.s.sub, p)
	if err != nil { // an agent's file has a value that cannot be stored: its line is stored nevertheless
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
		ack, added, err = w.append(log.Any) // lines are stored even if the session has lost records
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

// append appends the series, and retries until the log accepts it or refuses it finally.
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

// unshown reports that files of a tree do not show the appended events. The lines are stored, so it returns nil.
func (in *Ingester) unshown(err error) error {
	if err != nil && events.IsStored(err) {
		in.onceBy(err.Error(), Problem{Reason: err.Error(), Taken: true})
		return nil
	}
	return err
}

// patiently calls ask until the log answers or refuses finally.
func (in *Ingester) patiently(ctx context.Context, ask func() error) error {
	for attempt := 0; ; attempt++ {
		err := ask()
		isFirst := attempt == 0
		switch isOver := !isWait(err) || ctx.Err() != nil; {
		case isOver && isFirst:
			return err
		case isOver:
			in.blocked(nil, -1)
			return err
		case isFirst:
			in.blocked(err, 1)
		default:
			in.blocked(err, 0)
		}
		pause(ctx, attempt)
	}
}

// isWait reports whether a retry of the same series may succeed.
func isWait(err error) bool {
	for _, e := range []error{log.ErrFull, log.ErrQuota, log.ErrUnavailable, log.ErrUnknown, log.ErrBusy} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// blocked notes that the log refuses an append, or takes it, and reports a change. more is the change in the number of
// refused appends that are tried again.
func (in *Ingester) blocked(err error, more int) {
	isNews := false
	in.count(func(s *Status) {
		before := s.Blocked
		if s.refused += more; err != nil || s.refused == 0 {
			s.Blocked = err
		}
		isNews = (before != nil) != (s.Blocked != nil)
		if err != nil && isNews {
			s.Since = in.o.now()
		}
	})
	if isNews && in.o.Blocked != nil {
		in.o.Blocked()
	}
}

// placed sets the offsets of the appended lines. If appends of other producers may be in between, the offsets are read
// on demand.
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

// focus reads the unknown offsets of lines.
func (s *sessionState) focus(ctx context.Context, src Reader) error {
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
			if ok && escapeName(f.Name) == name && i < len(f.lines) && f.lines[i].at == 0 && f.lines[i].Span == at {
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

// writer returns the writer for a session.
func (in *Ingester) writer(ctx context.Context, agent agents.Agent, id string, force bool) (*writer, error) {
	sub := in.subject(id)
	s, err := in.session(ctx, agent, sub, sub, true)
	if err != nil {
		return nil, err
	}
	return &writer{in: in, ctx: ctx, own: s, s: s, force: force}, nil
}

// end flushes the series and releases the sessions.
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

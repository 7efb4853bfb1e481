package log

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natswire"
)

// headerLast is the header with the offset that the last record of the log must have.
const headerLast = "Nats-Expected-Last-Sequence"

// Filler returns the event that takes an offset in a copy whose original is not copied. All readers ignore it: it is the
// record of an append to no subjects.
func Filler(at events.Offset) events.Event {
	return events.Event{ID: "filler-" + strconv.FormatUint(uint64(at), 10), Source: redoSource, Type: events.TypeUnitAppended, Subject: redoSubject,
		ContentType: events.ContentTypeJSON, Data: []byte(`{"events":[]}`)}
}

// OtherLogError reports that a log has another record at an offset than the log of which it should be a copy. It matches
// ErrConflict.
type OtherLogError struct {
	Offset     events.Offset
	Have, Want string // ids of the events in the copy and in the original; "": there is no record
}

func (e *OtherLogError) Error() string {
	return fmt.Sprintf("at %v the target has %s and the original has %s: it is another log", e.Offset, eventOrNone(e.Have), eventOrNone(e.Want))
}

func eventOrNone(id string) string {
	if id == "" {
		return "no record"
	}
	return "event " + strconv.Quote(id)
}

// Is reports whether target is ErrConflict.
func (e *OtherLogError) Is(target error) bool { return target == ErrConflict }

// Mirror appends copies of another log's records, each at its own offset and with the time at which the original was
// recorded. It returns the offset of the last record of this log when all records are durable.
//
// read yields the other log's records after an offset, as Read or Follow of that log do, until its ctx ends. Mirror
// appends a Filler for an offset that read omits or reports as damaged, and for a record without a type. Any other error
// ends the copy behind the records before it.
//
// A copy may be interrupted anywhere: the log then has the first records, and the next Mirror continues. The log must be
// on a server, and this process must be its owner or no owner may exist. Nobody else may append: if another record is
// found in the place of a copy, the error is an *OtherLogError, and copies of later records may follow it, each at its
// offset. Other errors are those of Append. Mirror does not validate the events, and does not ask Host.Admit: the other
// log has accepted them.
func (l *Log) Mirror(ctx context.Context, read func(ctx context.Context, after events.Offset) iter.Seq2[events.Record, error]) (events.Offset, error) {
	if l.isClosed() {
		return 0, l.errClosed("mirror")
	}
	if l.js == nil || l.js.via {
		return 0, errors.New("log: mirror: the log is not on a server, or another process owns it")
	}
	m := &mirror{l: l, era: l.era()}
	err := m.begin(ctx)
	if err == nil {
		err = m.run(ctx, read)
	}
	if err == nil {
		err = m.isLast(ctx)
	}
	l.lasts.forget()
	l.ids.forget()
	if err != nil {
		return m.at, fmt.Errorf("log: mirror: %w", err)
	}
	if m.at > 0 {
		_, err = l.settle(ctx, "the copy", false, Ack{Last: m.at}, m.era)
	}
	return m.at, err
}

// A group of copies is sent without waiting for answers in between.
const (
	groupRecords = 1024
	groupBytes   = 4 << 20
	aheadRecords = 64 // that are read while a group is sent
)

// mirror is a Mirror under way.
type mirror struct {
	l        *Log
	era      *era
	sender   pipeline
	at       events.Offset // of the last record of the log
	recorded time.Time     // of that record
	group    []copied      // the records behind at, in their order
	size     int           // bytes of the group
}

// copied is a record of a group.
type copied struct {
	Publication
	id       string // of the event
	recorded time.Time
	bare     bool // it is sent without the id by which the server recognises it
}

// begin finds the end of the log.
func (m *mirror) begin(ctx context.Context) (err error) {
	if m.sender, err = m.l.js.pipeline(); err != nil {
		return err
	}
	if m.at, err = m.l.Head(ctx); err != nil || m.at == 0 {
		return err
	}
	last, err := m.l.record(ctx, m.at)
	m.recorded = last.Recorded
	return err
}

// arrived is what read yielded.
type arrived struct {
	rec events.Record
	err error
}

// run reads ahead, and sends a group when it is full or nothing more is there yet.
func (m *mirror) run(ctx context.Context, read func(context.Context, events.Offset) iter.Seq2[events.Record, error]) error {
	reading, stop := context.WithCancel(ctx)
	coming, over := make(chan arrived, aheadRecords), make(chan struct{})
	defer func() { stop(); <-over; m.sender.close() }()
	go func() {
		defer close(over)
		defer close(coming)
		for rec, err := range read(reading, m.at) {
			select {
			case coming <- arrived{rec, err}:
			case <-reading.Done():
				return
			}
		}
	}()
	for {
		var a arrived
		more := true
		select {
		case a, more = <-coming:
		default:
			if err := m.send(ctx); err != nil {
				return err
			}
			a, more = <-coming
		}
		if !more {
			break
		}
		if err := m.take(ctx, a); err != nil {
			return err
		}
	}
	if err := m.send(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// take adds what read yielded to the group, behind fillers for the offsets that read omitted. After an error of read it
// sends the group.
func (m *mirror) take(ctx context.Context, a arrived) error {
	rec := a.rec
	if damage, lost := errors.AsType[*events.DamageError](a.err); lost {
		rec = events.Record{Offset: damage.Offset}
	} else if a.err != nil {
		return errors.Join(m.send(ctx), a.err)
	}
	if next := m.next(); rec.Offset < next {
		return fmt.Errorf("record %v came behind %v", rec.Offset, next-1)
	}
	for m.next() < rec.Offset {
		if err := m.add(ctx, events.Record{Offset: m.next()}); err != nil {
			return err
		}
	}
	return m.add(ctx, rec)
}

// next returns the offset behind the group.
func (m *mirror) next() events.Offset { return m.at + events.Offset(len(m.group)) + 1 }

// add adds a record to the group, and sends the group when it is full. A filler without a time has that of the record
// before it.
func (m *mirror) add(ctx context.Context, rec events.Record) error {
	if rec.Type == "" {
		rec.Event = Filler(rec.Offset)
	}
	if rec.Recorded.IsZero() {
		rec.Recorded = m.recorded
		if n := len(m.group); n > 0 {
			rec.Recorded = m.group[n-1].recorded
		}
	}
	header := make([]byte, 0, roomOf(rec.Event)+len(headerRecorded)+len(time.RFC3339Nano)+4)
	if !rec.Recorded.IsZero() {
		header = fmt.Appendf(header, "%s: %s\r\n", headerRecorded, rec.Recorded.UTC().Format(time.RFC3339Nano))
	}
	header = events.AppendHeader(header, rec.Event)
	if rec.ContentType == "" {
		header = bytes.Replace(header, []byte("Content-Type: "+events.ContentTypeJSON+"\r\n"), nil, 1) // the original has none
	}
	out := Outgoing{ID: rec.MsgID(), Header: header, Data: rec.Data}
	m.group = append(m.group, copied{Publication: Publication{Writes: []Write{{Subject: rec.Subject.NATS(), Messages: []Outgoing{out}}}}, id: rec.ID, recorded: rec.Recorded})
	m.size += len(out.Data) + out.headerSize()
	if len(m.group) < groupRecords && m.size < groupBytes {
		return nil
	}
	return m.send(ctx)
}

// maxMirrorTries bounds how often a group is sent without any progress.
const maxMirrorTries = 5

// send stores the group. If a message was not stored, it looks up what the log has, and sends the rest again: messages of
// an interrupted copy may have arrived late, and the leader of a cluster may have changed.
func (m *mirror) send(ctx context.Context) error {
	for try := 0; len(m.group) > 0; try++ {
		if err := pause(ctx, 6*try); err != nil {
			return err
		}
		if m.l.config.Host.Room != nil {
			if err := m.l.config.Host.Room(); err != nil {
				return err
			}
		}
		n, err := m.l.js.publishAt(ctx, m.sender, m.at, m.group)
		if m.stored(n); n > 0 {
			try = 0
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, ErrDuplicate) && !m.group[0].bare:
			// The original has the event twice, because a producer set no id for the server. So does the copy.
			m.group[0].bare = true
			continue
		case errors.Is(err, ErrFull), ctx.Err() != nil:
			return err
		}
		found, lookErr := m.lookUp(ctx)
		switch {
		case lookErr != nil:
			return lookErr
		case found > 0:
			try = 0
		case try == maxMirrorTries:
			return err
		}
	}
	return nil
}

// stored removes the first records of the group, which the log has.
func (m *mirror) stored(n int) {
	if n == 0 {
		return
	}
	size := 0
	for _, c := range m.group[:n] {
		out := c.Writes[0].Messages[0]
		size += len(out.Data) + out.headerSize()
	}
	m.at += events.Offset(n)
	m.recorded = m.group[n-1].recorded
	m.group = append(m.group[:0], m.group[n:]...)
	m.size -= size
	m.l.note(&appending{size: size, era: m.era}, Ack{Last: m.at})
}

// isLast returns an *OtherLogError if the log goes on behind the copy.
func (m *mirror) isLast(ctx context.Context) error {
	head, err := m.l.Head(ctx)
	if err != nil || head <= m.at {
		return err
	}
	rec, err := m.l.record(ctx, m.at+1)
	return cmp.Or(err, error(&OtherLogError{Offset: m.at + 1, Have: rec.ID}))
}

// lookUp finds which records of the group the log has already, and returns their number.
func (m *mirror) lookUp(ctx context.Context) (found int, err error) {
	st, err := m.l.backend.State(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range m.group {
		at := m.at + events.Offset(found) + 1
		if at > st.Last {
			break
		}
		rec, err := m.l.record(ctx, at)
		if err != nil {
			return found, err
		}
		if rec.MsgID() != c.Writes[0].Messages[0].ID {
			return found, &OtherLogError{Offset: at, Have: rec.ID, Want: c.id}
		}
		found++
	}
	m.stored(found)
	return found, nil
}

// A pipeline sends messages, and returns for each a function that waits for its answer.
type pipeline struct {
	send  func(natswire.Publication) (func(context.Context) (pubAck, error), error)
	push  func() // sends what waits
	close func()
}

// pipeline returns a pipeline on the connection of the appends.
func (b *jetStream) pipeline() (pipeline, error) {
	if p := b.own; p != nil {
		return pipeline{push: p.conn.Push, close: func() {}, send: func(m natswire.Publication) (func(context.Context) (pubAck, error), error) {
			n, got, err := p.send(m)
			return func(ctx context.Context) (pubAck, error) { return p.receive(ctx, n, got) }, err
		}}, nil
	}
	c := b.writes.(connSender)
	js, err := jetstream.New(c.nc)
	if err != nil {
		return pipeline{}, err
	}
	return pipeline{push: func() {}, close: js.CleanupPublisher, send: func(m natswire.Publication) (func(context.Context) (pubAck, error), error) {
		sent, err := js.PublishMsgAsync(c.message(m))
		if err != nil {
			return nil, fmt.Errorf("%w: %v", ErrUnavailable, err)
		}
		return func(ctx context.Context) (pubAck, error) {
			timer := time.NewTimer(c.wait)
			defer timer.Stop()
			select {
			case ack := <-sent.Ok():
				return pubAck{Sequence: ack.Sequence, Duplicate: ack.Duplicate}, nil
			case err := <-sent.Err():
				if api, refused := errors.AsType[*jetstream.APIError](err); refused {
					return pubAck{}, answerError(int(api.ErrorCode), api.Description)
				}
				return pubAck{}, requestError(err)
			case <-timer.C:
				return pubAck{}, requestError(context.DeadlineExceeded)
			case <-ctx.Done():
				return pubAck{}, requestError(ctx.Err())
			}
		}, nil
	}}, nil
}

// publishAt stores records directly behind an offset. It returns how many of the first ones are stored for certain, and
// the error of the next one. The server refuses each record behind one that it did not store.
func (b *jetStream) publishAt(ctx context.Context, to pipeline, at events.Offset, list []copied) (stored int, err error) {
	if b.half.Load() {
		if err := b.finish(ctx); err != nil {
			return 0, fmt.Errorf("%w: %v", ErrUnavailable, err)
		}
	}
	b.appending.RLock()
	defer b.appending.RUnlock()
	s := b.line.Load().active()
	waits := make([]func(context.Context) (pubAck, error), 0, len(list))
	for i, c := range list {
		out := c.Writes[0].Messages[0]
		p := message(s, c.Writes[0].Subject, out, Exactly{})
		if c.bare {
			p.Extra = p.Extra[1:]
		}
		p.Extra = append(p.Extra, natswire.Field{Name: headerLast, Value: strconv.FormatUint(uint64(at)+uint64(i), 10)})
		s.expects(c.Publication)
		wait, failed := to.send(p)
		if err = failed; err != nil {
			break
		}
		waits = append(waits, wait)
	}
	to.push()
	firm := true // all records so far are stored
	for i, wait := range waits {
		ack, failed := wait(ctx)
		want := at + events.Offset(i) + 1
		switch {
		case failed != nil:
		case events.Offset(ack.Sequence) == want: // stored now, or by an interrupted copy
		case ack.Duplicate:
			failed = ErrDuplicate
		default:
			failed = fmt.Errorf("%w: record %v was stored at %d", ErrUnknown, want, ack.Sequence)
		}
		s.note(list[i].Publication, Receipt{Last: want}, failed)
		if failed != nil && firm {
			firm, err = false, failed
		}
		if firm {
			stored++
		}
	}
	if s.replicated {
		b.saw(at + events.Offset(stored))
	}
	return stored, err
}

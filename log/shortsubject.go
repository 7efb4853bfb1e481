package log

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
)

// shortSubjects is a Backend that reads subjects of few messages without a consumer. Making a consumer and deleting it
// costs more than several requests for a message.
type shortSubjects interface {
	// Few returns a subject's messages behind an offset, if there are at most n. ok is false if there are more, or if the
	// backend cannot tell that it has found all of them. The caller ensures that nobody appends to the subject meanwhile.
	Few(ctx context.Context, subject string, after events.Offset, n int) (list []Message, ok bool, err error)
}

// Few implements shortSubjects. The server counts unreadable messages, but does not find them.
func (b *jetStream) Few(ctx context.Context, subject string, after events.Offset, n int) ([]Message, bool, error) {
	s := b.line.Load().active()
	switch {
	case s.subjects == nil || s.replicated || s.first > after+1:
		return nil, false, nil
	case s.lacks(subject):
		return nil, true, nil
	}
	count, err := b.count(ctx, s, subject)
	if err != nil || count > uint64(n) {
		return nil, false, err
	}
	var list []Message
	for range count {
		m, err := rawMessage(ask(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
			return s.stream.GetMsg(ctx, uint64(after+1), jetstream.WithGetMsgSubject(subject))
		}))
		if err != nil {
			return nil, false, ctx.Err() // a scan says what it is
		}
		list, after = append(list, m), m.Offset
	}
	return list, true, nil
}

// fillFew indexes a subject that has few records behind the backend's own index, and reports whether it did. A store
// with lost records is not believed, see isNew.
func (l *Log) fillFew(ctx context.Context, ids *subjectIDs) (bool, error) {
	b, ok := l.backend.(shortSubjects)
	if !ok || !l.alone() || l.Lost() > 0 {
		return false, nil
	}
	from := events.Offset(0)
	if b, ok := l.backend.(indexed); ok {
		from = b.Indexed()
	}
	list, ok, err := b.Few(ctx, ids.sub.NATS(), from, len(ids.offsets.few))
	if !ok || err != nil {
		return false, err
	}
	recs := make([]events.Record, len(list))
	for i, m := range list {
		if recs[i], err = decode(m); err != nil {
			return false, nil // a scan says what it is
		}
	}
	upto := from
	if len(recs) > 0 {
		upto = recs[len(recs)-1].Offset
	} else if upto, err = l.lastOf(ctx, ids.sub.NATS()); err != nil || upto == 0 || upto > from {
		return false, err
	}
	for _, rec := range recs {
		ids.note(l.ids.hash(rec.Event), rec.Type, rec.Offset)
	}
	ids.from, ids.upto, ids.whole = from, upto, true
	l.ids.grew(ids)
	return true, nil
}

package log

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally/events"
)

// noteKey is the key of a context's note.
type noteKey struct{}

// NoteDamage returns a context with which each read calls note for every lost record that it meets, besides returning
// it. A program that answers a question thus learns in one place whether the answer rests on a subject with a hole,
// whatever code read it. Any goroutine may call note; nil ends the notes of an outer context.
func NoteDamage(ctx context.Context, note func(*events.DamageError)) context.Context {
	return context.WithValue(ctx, noteKey{}, note)
}

// Noted passes err to the context's note if it is about a lost record, and returns it.
func Noted(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if note, _ := ctx.Value(noteKey{}).(func(*events.DamageError)); note != nil {
		if damage, is := errors.AsType[*events.DamageError](err); is {
			note(damage)
		}
	}
	return err
}

// lostBehind returns the damage of the last record of a subject behind an offset that is known to be lost, or nil. Lost
// records of unknown subject do not count: otherwise one would block every subject.
func (l *Log) lostBehind(sub events.Subject, at events.Offset) error {
	for _, h := range l.holes.reported(at) {
		if h.Subject != "" && h.Subject == sub.NATS() {
			return &events.DamageError{Offset: h.Offset}
		}
	}
	return nil
}

// unread refuses an append with an expectation if a record of its subject is lost behind the expected offset: the
// decision did not rest on the whole subject.
func (l *Log) unread(sub events.Subject, expect Expect) error {
	if expect.kind != expectAt && expect.kind != expectSince {
		return nil
	}
	if err := l.lostBehind(sub, expect.at); err != nil {
		return fmt.Errorf("append to %s: not written: %w", sub.Name(), err)
	}
	return nil
}

// notWritten refuses an append that was decided on while a record of its subject cannot be read.
func (l *Log) notWritten(p *appending, lost events.Offset) error {
	return fmt.Errorf("append to %s: not written: %w", p.sub.Name(), &events.DamageError{Offset: lost})
}

// unreadable returns the damage of the last record of a subject that the backend does not find, or nil if the subject
// has no records. The backend may count a record that it cannot read.
func (l *Log) unreadable(ctx context.Context, sub events.Subject) error {
	n, err := l.count(ctx, sub.NATS(), 0, events.MaxOffset)
	if err != nil || n == 0 {
		return err
	}
	for _, err := range l.ReadBack(ctx, events.Range{Subject: sub, Limit: 1, Buffered: true}) {
		return err
	}
	return nil
}

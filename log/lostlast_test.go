package log_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// headless is a Backend that behaves like a server whose last record of a subject is lost. It refuses an append that
// expects another record, and names offset 0, because it cannot read the lost record.
type headless struct {
	*memlog.Backend
	lost events.Offset
}

func (h headless) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	w := &p.Writes[0]
	if h.lost > 0 && w.Expect.Set {
		if w.Expect.At != 0 {
			sub, _ := events.ParseNATS(w.Subject)
			return log.Receipt{}, &log.ConflictError{Subject: sub, Want: w.Expect.At}
		}
		w.Expect.At = h.lost
	}
	return h.Backend.Publish(ctx, p)
}

// An append continues behind a lost last record that the server does not name in its refusal. An append with an
// expectation of the subject names the record and writes nothing.
func TestAppendBehindALostLastRecordThatTheServerDoesNotName(t *testing.T) {
	for name, expect := range map[string]log.Expect{"not decided": log.Any, "decided": log.Since(1, events.TypeSessionRewound)} {
		t.Run(name, func(t *testing.T) {
			h := &headless{Backend: memlog.New(memlog.Config{})}
			l, err := log.OpenOn(t.Context(), h, log.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			a := events.Session("", "a")
			for _, id := range []string{"one", "two"} {
				if _, err := l.Append(t.Context(), a, log.Any, note(id, id)); err != nil {
					t.Fatal(err)
				}
			}
			h.lost = 2
			h.Damage(h.lost)
			again, err := log.OpenOn(t.Context(), h, log.Config{}) // its index does not have the subject
			if err != nil {
				t.Fatal(err)
			}
			ack, err := again.Append(t.Context(), a, expect, note("three", "three"))
			if expect == log.Any {
				if err != nil || ack.Last != 3 {
					t.Errorf("append: got %+v, %v, want offset 3", ack, err)
				}
				return
			}
			if damage, is := errors.AsType[*events.DamageError](err); !is || damage.Offset != 2 {
				t.Errorf("append: got %+v, %v, want the damage of record 2", ack, err)
			}
		})
	}
}

// A server counts the records after an offset by reading them, so it does not count a lost one. A read with Range.Known
// reports it anyway.
func TestReadBehindAnOffsetNoticesALostRecord(t *testing.T) {
	dir, a := t.TempDir(), events.Session("", "a")
	s := mustServe(t, dir, nil)
	l := mustOpen(t, mustDial(t, s), log.Config{})
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		if _, err := l.Append(t.Context(), a, log.Any, note(id, id)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(t.Context(), events.Session("", "b"), log.Any, note(id, id)); err != nil {
			t.Fatal(err)
		}
	}
	s.Shutdown()
	s.WaitForShutdown()
	spoil(t, natsfile.Path(natsfile.Messages(dir, "TALLY_1"), 1), 7)

	l = mustOpen(t, mustDial(t, mustServe(t, dir, nil)), log.Config{})
	for _, r := range []events.Range{{}, {After: 1, Known: 1}, {After: 3, Known: 2}, {After: 4, Known: 2}, {After: 5, Known: 3}, {After: 6, Known: 3}} {
		r.Subject = a
		lost := 0
		for _, err := range l.Read(t.Context(), r) {
			if damage, is := errors.AsType[*events.DamageError](err); is && damage.Offset == 7 {
				lost++
			} else if err != nil {
				t.Errorf("%+v: %v", r, err)
			}
		}
		if lost != 1 {
			t.Errorf("a read after %v reports the lost record %d times, want once", r.After, lost)
		}
	}
	if got := show(t, l, events.Range{Subject: a, After: 7, Known: 4}); len(got) != 1 {
		t.Errorf("read after the lost record: got %v, want 1 record", got)
	}
}

// spoil flips a bit of a record's payload in a block and keeps the file's time.
func spoil(t *testing.T, path string, at uint64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	records, _ := natsfile.Scan("TALLY_1", 1, data)
	for _, r := range records {
		if uint64(r.Seq) == at {
			data[r.End-12] ^= 4
		}
	}
	err = errors.Join(os.WriteFile(path, data, 0o600), os.Chtimes(path, info.ModTime(), info.ModTime()))
	if err != nil {
		t.Fatal(filepath.Base(path), err)
	}
}

package log_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// Admit is called once for each append, with all parts, before anything is stored, and settle is called once with the
// outcome. The same holds with a redo record.
func TestAdmit(t *testing.T) {
	for name, c := range map[string]log.Config{"plain": {}, "owner": {Host: log.Host{Owner: true, Sync: func(string) error { return nil }}}} {
		t.Run(name, func(t *testing.T) {
			asked, told := 0, ""
			refuse := error(nil)
			c.Host.Admit = func(_ context.Context, parts []log.Part) (func([]log.Ack, error), error) {
				asked += len(parts)
				told = ""
				return func(acks []log.Ack, err error) {
					if told += "stored"; err != nil {
						told = "not stored"
					} else if len(acks) != len(parts) {
						t.Errorf("settle got %d acks, want %d", len(acks), len(parts))
					} else if acks[0].Duplicate {
						told = "there before"
					}
				}, refuse
			}
			l := logtest.OpenOn(t, memlog.New(memlog.Config{}), c)
			part := func(id string, at events.Offset) log.Part {
				return log.Part{Subject: events.Document("", "doc", id), Expect: log.At(at), Events: []events.Event{{ID: "e", Source: "urn:t", Type: "com.example.x"}}}
			}
			must := func(err error, want error, said string, parts int) {
				t.Helper()
				if !errors.Is(err, want) || told != said || asked != parts {
					t.Errorf("error %v, outcome %q, Admit was called with %d parts; want %v, %q, %d", err, told, asked, want, said, parts)
				}
				asked, told = 0, ""
			}
			p := part("a", 0)
			_, err := l.Append(t.Context(), p.Subject, p.Expect, p.Events...)
			must(err, nil, "stored", 1)
			_, err = l.Append(t.Context(), p.Subject, p.Expect, p.Events...)
			must(err, nil, "there before", 1)
			p.Events[0].ID = "f"
			_, err = l.Append(t.Context(), p.Subject, p.Expect, p.Events...)
			must(err, log.ErrConflict, "not stored", 1)
			_, err = l.AppendAll(t.Context(), part("b", 0), part("c", 0))
			must(err, nil, "stored", 2)
			refuse = fmt.Errorf("refused: %w", log.ErrQuota)
			_, err = l.AppendAll(t.Context(), part("d", 0), part("e", 0))
			must(err, log.ErrQuota, "", 2)
			_, err = l.Append(t.Context(), events.Document("", "doc", "d"), log.At(0), p.Events...)
			must(err, log.ErrQuota, "", 1)
			if at, err := l.Head(t.Context()); err != nil || name == "plain" && at != 3 {
				t.Errorf("head is %v, %v, want 3", at, err)
			}
		})
	}
}

package embedded_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
)

// If flipped bits damage the subject of a record, the server no longer counts the record to its subject, and takes an
// older record for the newest. The first read reports the damage.
func TestDamagedSubject(t *testing.T) {
	subject, other := events.Session("", "pear"), events.Session("", "peal")
	for name, damage := range map[string]struct {
		by   string           // replaces "pear"
		loud []events.Subject // the subjects whose reads report the loss
	}{
		"B-02 a name that is no subject":         {"\xb0%a\x00", []events.Subject{subject, other}},
		"B-02 the name of nobody":                {"pdaq", []events.Subject{subject, other}},
		"B-02 the name of another that is there": {"peal", []events.Subject{subject, other}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := mustStart(t, embedded.ServerOptions{Dir: dir})
			mustAppend(t, s.Log(), other, turn("o", "of the other"))
			mustAppend(t, s.Log(), subject, turn("one", "first"))
			lost := mustAppend(t, s.Log(), subject, turn("two", "second")).Last
			mustAppend(t, s.Log(), events.Session("", "plum"), turn("p", "behind"))
			mustClose(t, s)
			path := natsfile.Path(natsfile.Messages(dir, "TALLY_1"), 1)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			records, _ := natsfile.Scan("TALLY_1", 1, data)
			record := data[records[lost-1].Begin:records[lost-1].End]
			at := bytes.Index(record, []byte(subject.NATS())) + len(subject.NATS()) - len("pear")
			copy(record[at:], damage.by)
			rewriteInPlace(t, path, data)

			s = mustStart(t, embedded.ServerOptions{Dir: dir})
			for _, sub := range damage.loud {
				var damaged []events.Offset
				for _, err := range s.Log().Read(t.Context(), events.Range{Subject: sub}) {
					if damage, is := errors.AsType[*events.DamageError](err); is {
						damaged = append(damaged, damage.Offset)
					} else if err != nil {
						t.Fatal(err)
					}
				}
				if !slices.Equal(damaged, []events.Offset{lost}) {
					t.Errorf("a read of %v: got lost records %v, want %v", sub, damaged, lost)
				}
			}
		})
	}
}

package embedded_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// The owner of a store guards any number of subjects, however large the batch is.
func TestGuardsOfLargeUnits(t *testing.T) {
	s, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	large := func(id string) log.Part {
		return log.Part{Subject: events.Session("", "a"), Expect: log.Any,
			Events: []events.Event{{ID: id, Source: "urn:test", Type: "com.example.large", Data: []byte(strings.Repeat("x", 2<<20))}}}
	}
	guard := func(sub string, at events.Offset) log.Part {
		return log.Part{Subject: events.Session("", sub), Expect: log.At(at)}
	}
	fresh := s.Log().NewID()
	for _, duplicate := range []bool{false, true} {
		acks, err := s.Log().AppendAll(t.Context(), guard("b", 0), large(fresh), guard("c", 0))
		if err != nil || len(acks) != 3 || acks[1].Last != 1 || acks[1].Duplicate != duplicate {
			t.Errorf("got %+v, %v", acks, err)
		}
	}
	_, err = s.Log().AppendAll(t.Context(), large("2"), guard("b", 0), guard("c", 7))
	conflict, ok := errors.AsType[*log.ConflictError](err)
	if !ok || conflict.Subject != events.Session("", "c") || conflict.Want != 7 || conflict.Have != 0 {
		t.Errorf("got %v, want a conflict with c", err)
	}
}

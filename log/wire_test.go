package log_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// docs/wire.md lists exactly the codes of errors on the wire, because clients branch on them.
func TestWireCodesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "| code | means |")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \|`).FindAllStringSubmatch(table, -1) {
		for _, code := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, code[1])
		}
	}
	have := log.WireCodes()
	slices.Sort(documented)
	slices.Sort(have)
	if diff := cmp.Diff(documented, have); diff != "" {
		t.Errorf("codes (-documented +used):\n%s", diff)
	}
}

// An error that callers branch on is the same error for the client as for the owner.
func TestErrorsTravel(t *testing.T) {
	sub := events.Session("", "s")
	for code, err := range map[string]error{
		"invalid":  &events.InvalidError{Field: "id", Reason: "missing"},
		"tooLarge": &log.SizeError{Index: 2, What: "data", Size: 9, Max: 8},
		"quota":    &log.QuotaError{Scope: "owner:ann", Meter: "live", Limit: 10, Have: 8, Want: 11},
		"personal": &events.PersonalError{Where: "a store that others can reach"},
		"conflict": &log.ConflictError{Subject: sub, Want: 1, Have: 2},
		"type":     &events.TypeError{Name: "com.acme.vote.v1", Field: "moves", Have: "thread", Want: "ledger"},
		"moved":    &log.MovedError{To: "nats://new"},
		"partial":  &log.PartialError{Subject: sub, Have: []log.Existing{{Index: 1, ID: "a", Offset: 7}}},
	} {
		got, after := log.OverTheWire(fmt.Errorf("somewhere: %w", err), sub)
		if diff := cmp.Diff(err, after); got != code || diff != "" {
			t.Errorf("got code %s, want %s (-sent +received):\n%s", got, code, diff)
		}
	}
	for code, err := range map[string]error{"conflict": log.ErrConflict, "unknown": log.ErrUnknown, "aborted": log.ErrAborted, "full": log.ErrFull, "unavailable": log.ErrUnavailable, "damaged": log.ErrDamaged} {
		got, after := log.OverTheWire(fmt.Errorf("somewhere: %w", err), sub)
		if got != code || !errors.Is(after, err) {
			t.Errorf("%v has code %s on the wire and is received as %v", err, got, after)
		}
	}
	if got, after := log.OverTheWire(errors.New("odd"), sub); got != "internal" || after.Error() != "odd" {
		t.Errorf("another error has code %s on the wire and is received as %v", got, after)
	}
}

package log_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// documentedCodes returns the codes in docs/wire.md, each with the status of an HTTP answer.
func documentedCodes(t *testing.T) (list [][2]string) {
	t.Helper()
	doc, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "| code | means |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \|.* (\d+) \|$`).FindAllStringSubmatch(table, -1) {
		for _, code := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			list = append(list, [2]string{code[1], row[2]})
		}
	}
	return list
}

// docs/wire.md lists exactly the codes of errors, each once for NATS and for HTTP, because clients branch on them.
func TestWireCodesAreDocumented(t *testing.T) {
	documented, have := documentedCodes(t), log.WireCodes()
	order := func(a, b [2]string) int { return strings.Compare(a[0], b[0]) }
	slices.SortFunc(documented, order)
	slices.SortFunc(have, order)
	if diff := cmp.Diff(documented, have); diff != "" {
		t.Errorf("codes (-documented +used):\n%s", diff)
	}
}

// An error that callers branch on is the same error for the client as for the owner, and its answer over HTTP has the
// status of its code. Each code has an error.
func TestErrorsTravel(t *testing.T) {
	sub := events.Session("", "s")
	status, seen := make(map[string]string), make(map[string]bool)
	for _, c := range documentedCodes(t) {
		status[c[0]] = c[1]
	}
	over := func(err error) (code string, after error) {
		f := log.FailureOf(fmt.Errorf("somewhere: %w", err))
		if got := strconv.Itoa(f.Status()); got != status[f.Code] {
			t.Errorf("%v: got status %s over HTTP, want %s", err, got, status[f.Code])
		}
		seen[f.Code] = true
		return f.Code, log.OverTheWire(f, sub)
	}
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
		got, after := over(err)
		if diff := cmp.Diff(err, after); got != code || diff != "" {
			t.Errorf("got code %s, want %s (-sent +received):\n%s", got, code, diff)
		}
	}
	for code, err := range map[string]error{"conflict": log.ErrConflict, "unknown": log.ErrUnknown, "aborted": log.ErrAborted, "full": log.ErrFull, "unavailable": log.ErrUnavailable, "damaged": log.ErrDamaged} {
		got, after := over(err)
		if got != code || !errors.Is(after, err) {
			t.Errorf("%v has code %s on the wire and is received as %v", err, got, after)
		}
	}
	for _, code := range []string{"gap", "outOfOrder"} {
		if got, _ := over(log.OutOfTurn(code == "gap")); got != code {
			t.Errorf("got code %s, want %s", got, code)
		}
	}
	if got, after := over(errors.New("odd")); got != "internal" || after.Error() != "somewhere: odd" {
		t.Errorf("another error has code %s on the wire and is received as %v", got, after)
	}
	for code := range status {
		if !seen[code] {
			t.Errorf("no error has code %s", code)
		}
	}
}

package admin

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

// On SIGHUP, files of credentials come into effect together. If one is invalid, none does.
func TestRenewals(t *testing.T) {
	var errw bytes.Buffer
	a := &cmdutil.App{Err: &errw}
	c, err := a.Config()
	if err != nil {
		t.Fatal(err)
	}
	var broken error
	var used []string
	of := func(name string, err *error) renewal {
		return func() (func(), error) { return func() { used = append(used, name) }, *err }
	}
	o := &owning{app: a, config: c, renewals: []renewal{of("a", new(error)), of("b", &broken)}}
	broken = errors.New("line 3 is wrong")
	if _, err := o.reread(); !errors.Is(err, broken) || len(used) > 0 {
		t.Errorf("an invalid file: got %v, and %q are in effect", err, used)
	}
	broken = nil
	if changed, err := o.reread(); changed || err != nil || strings.Join(used, " ") != "a b" {
		t.Errorf("got %v, %v, and %q are in effect", changed, err, used)
	}
	if want := "Users and certificates were reloaded.\n"; errw.String() != want {
		t.Errorf("got %q, want %q", errw.String(), want)
	}
}

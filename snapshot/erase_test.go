package snapshot_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/snapshot"
)

// Erase overwrites and removes all files of a subject, also those that are no snapshots. Others stay.
func TestErase(t *testing.T) {
	st, path := shelf(t)
	secret := []byte(testkit.Canary("erase"))
	mustWrite(t, path, secret)
	mustWrite(t, path+".tally-tmp-123", secret)
	other := filepath.Join(t.TempDir(), "other name")
	if err := os.Link(path, other); err != nil {
		t.Skip("the file system has no links")
	}
	before := st.Since()
	if err := st.Erase(t.Context(), s1, events.Session("", "missing")); err != nil {
		t.Fatal(err)
	}
	if found, _ := testkit.CanaryFiles(t, st.Dir()); len(found) > 0 {
		t.Errorf("canaries are in %v", found)
	}
	if data := mustRead(t, other); len(data) != len(secret) || testkit.HasCanary(data) {
		t.Errorf("the content of the file is %q, want zeros", data)
	}
	mustHold(t, st, s1)
	mustHold(t, st, events.Session("", "s2"), at(events.Session("", "s2"), 8))
	if err := before.Put(t.Context(), at(s1, 7)); !errors.Is(err, snapshot.ErrErased) {
		t.Errorf("a fold from before: got %v, want ErrErased", err)
	}
	if err := st.Since().Put(t.Context(), at(s1, 7)); err != nil {
		t.Error(err)
	}
	mustHold(t, st, s1, at(s1, 7))
}

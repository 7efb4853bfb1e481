package smallwrites_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/testkit/smallwrites"
)

// Each write of a run is refused in a run of its own: once, or until writes are allowed. Writes elsewhere succeed.
func TestEach(t *testing.T) {
	for _, kind := range smallwrites.Kinds {
		var runs []string
		smallwrites.Each(t, kind, func(t *testing.T, w *smallwrites.Writes) {
			dir, elsewhere := t.TempDir(), t.TempDir()
			run := ""
			write := func(name string) {
				if err := durable.Replace(filepath.Join(elsewhere, name), nil, 0o600, durable.NoSync); err != nil {
					t.Error(err)
				}
				err := durable.Replace(filepath.Join(dir, name), nil, 0o600, durable.NoSync)
				if err != nil {
					w.Logger().Error("a write failed", "error", err)
					run += strings.ToUpper(name)
				} else {
					run += name
				}
			}
			write("a")
			w.Watch(dir, "start")
			write("a")
			w.Watch(dir, "use")
			write("a")
			write("b")
			write("a")
			w.Allow()
			write("a")
			if refused := strings.ToLower(run) != run; refused != w.Reported() || refused != (len(w.Refused()) > 0) {
				t.Errorf("%s: reported %v, refused %v", run, w.Reported(), w.Refused())
			}
			if _, err := os.Stat(filepath.Join(dir, "a")); err != nil {
				t.Error(err)
			}
			runs = append(runs, run)
		})
		want := []string{"aaabaa", "aAabaa", "aaAbaa", "aaaBaa", "aaabAa"}
		if kind.Lasting {
			want = []string{"aaabaa", "aAAbAa", "aaAbAa", "aaaBaa", "aaabAa"}
		}
		if !slices.Equal(runs, want) {
			t.Errorf("%s: got %q, want %q", kind.Name, runs, want)
		}
	}
}

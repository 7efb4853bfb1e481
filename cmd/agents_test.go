package cmd_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// Recorded files of real agents are imported at once, a second import adds no event, and an export returns them byte
// for byte with the same names.
func TestRecordedAgentsComeBack(t *testing.T) {
	t.Parallel()
	agents := func(name string) string { return testkit.Data(t, "agents", name) }
	for _, home := range []struct{ format, path, root string }{
		{"codex", agents("codex-0.118"), ""},
		{"codex", agents("codex-0.169"), ""},
		{"gemini", agents("gemini-0.61"), "tmp"},
		{"pi", agents("pi-0.73"), "sessions"},
		{"claude-code", agents("growth"), ".."},
		{"claude-code", testkit.Data(t, "claude"), "projects"},
	} {
		t.Run(filepath.Base(home.path), func(t *testing.T) {
			testkit.Sample(t, 3)
			t.Parallel()
			dir := t.TempDir()
			store, out := filepath.Join(dir, "store"), filepath.Join(dir, "out")
			for n, wantEvents := range []bool{true, false} {
				var report struct {
					Sessions, Added, Unchanged, Events, Lines int
					Problems                                  []any
				}
				if err := json.Unmarshal([]byte(output(t, nil, store, "tally", "import", home.path, "-o", "json")), &report); err != nil {
					t.Fatal(err)
				}
				if report.Sessions == 0 || report.Events > 0 != wantEvents || len(report.Problems) > 0 || n == 0 && (report.Added != report.Sessions || report.Lines == 0) || n == 1 && report.Unchanged != report.Sessions {
					t.Errorf("import %d: got %+v", n+1, report)
				}
			}
			output(t, nil, store, "tally", "export", "--all", "--format", home.format, "-C", out)
			given, root := 0, filepath.Join(home.path, home.root)
			err := filepath.WalkDir(home.path, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || !strings.HasSuffix(path, ".jsonl") {
					return err
				}
				given++
				name, err := filepath.Rel(root, path)
				if err != nil {
					return err
				}
				want, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if got, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(got) != string(want) {
					t.Errorf("%s: got %d bytes, want %d, %v", name, len(got), len(want), err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			back := 0
			if err := filepath.WalkDir(out, func(_ string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					back++
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if given == 0 || back != given {
				t.Errorf("got %d exported files, want %d", back, given)
			}
		})
	}
}

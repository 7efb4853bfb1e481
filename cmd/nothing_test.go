package cmd_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// A reading command creates nothing for any store. A missing store counts as empty, and another directory is refused.
func TestReadingMakesNothing(t *testing.T) {
	const foreign = "a folder that is something else"
	third := 0
	for name, where := range map[string][]string{"the default": nil, "a slip in --store": {"--store", "stroe"}, foreign: {"--store", "documents"}} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			project, temp := filepath.Join(home, "project"), t.TempDir()
			if err := os.MkdirAll(filepath.Join(project, "documents", "letters"), 0o700); err != nil {
				t.Fatal(err)
			}
			before := paths(t, home)
			third = (third + 1) % 3
			for i, c := range []struct {
				args string
				code int
			}{{"ls", 0}, {"cost", 0}, {"stats", 0}, {"stats s", 4}, {"search word", 4}, {"show last", 4}, {"show s", 4}, {"log --all-sessions", 0}, {"log s", 4}, {"cost s", 4}, {"runs s", 4}, {"runs s --tree", 4}, {"jobs", 0}, {"jobs --status running", 0}, {"show job/s --run r --step 1", 4}, {"diff s #1 #2", 4},
				{"export s --format ailoop -o out", 4}, {"verify", 0}, {"status", 0}, {"doctor", 0}, {"doctor --mend --verify", 0}, {"backup backups", 4},
				{"fork s --at #1", 4}, {"rewind s --to #1", 4}, {"undo s", 4}, {"redo s", 4},
				{"doc cat doc/a", 4}, {"doc ls", 0}, {"doc ls --leases", 0}, {"doc log doc/a", 4}, {"doc diff doc/a", 4}, {"doc links doc/a", 4}, {"doc links doc/a --back", 0},
				{"agent ls", 0}, {"agent show kettle", 4}, {"agent state kettle working", 4}, {"flow ls", 0}, {"flow show f", 4}, {"flow move f test", 4}, {"flow start w", 4},
				{"doc rm doc/a --base @1", 4}, {"doc mv doc/a b", 4}, {"doc put doc/a /dev/null --base @1", 4},
				{"inbox ls user", 0}, {"inbox ls user --unread", 0}, {"inbox ls agent", 4}, {"inbox ack agent last", 4}, {"queue ls", 0}, {"queue ls q", 4}, {"queue show q i", 4}, {"queue retry q i", 4}} {
				if !testkit.Plays(i+third, 6) {
					continue
				}
				cmd := exec.Command(filepath.Join(bin, "tally"), append(strings.Fields(c.args), where...)...)
				cmd.Dir = project
				cmd.Env = []string{"HOME=" + home, "TMPDIR=" + temp, "PATH=" + os.Getenv("PATH")}
				for _, name := range []string{"DATA", "CONFIG", "STATE", "CACHE"} {
					cmd.Env = append(cmd.Env, "XDG_"+name+"_HOME="+filepath.Join(home, "xdg", name))
				}
				out, err := cmd.CombinedOutput()
				if name == foreign {
					c.code = 7
				}
				if code := codeOf(t, err); code != c.code {
					t.Errorf("%s: got exit code %d, want %d\n%s", c.args, code, c.code, out)
				}
				if now := paths(t, home) + paths(t, temp); now != before+"." {
					t.Fatalf("%s changed the folder:\n%s\n%s", c.args, now, out)
				}
			}
		})
	}
}

// paths lists the files of a folder.
func paths(t *testing.T, dir string) string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		list = append(list, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, "\n")
}

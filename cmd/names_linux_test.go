package cmd_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// ofTheLog matches names as the log has them: an escaped byte of an id, a subject.
var ofTheLog = regexp.MustCompile(`=[0-9A-F]{2}|tally\.v1\.`)

// An error names a session or a document as ls and doc ls do, also if its id is escaped in the log.
func TestNamesInErrors(t *testing.T) {
	env := caseEnv(t, t.TempDir())
	home := homeOf(env)
	const session, doc = "codex/019f x.y é", "doc/plans/a b.md"
	for name, text := range map[string]string{
		"turn": `{"id":"a","text":"one"}` + "\n", "other": `{"id":"a","text":"two"}` + "\n",
		"rewind":  `{"specversion":"1.0","id":"r","source":"urn:t","type":"tally.session.rewound.v1","data":{"to":1}}` + "\n",
		"subject": `{"specversion":"1.0","id":"s","source":"urn:t","type":"tally.session.updated.v1","subject":"session/codex=2Fother","data":{}}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runCase(t, env, caseStep{run: "tally append '" + session + "' <turn && echo text | tally doc put --create '" + doc + "'"})
	for _, c := range []struct {
		run, named string
	}{
		{"tally show 'S' --at '#99'", session},
		{"tally show 'S' --at @900", session},
		{"tally show 'S' --at '~7'", session},
		{"tally show 'S' --run --step 3", ""},
		{"tally runs 'S'", session},
		{"tally diff 'S' '#7' head", session},
		{"tally rewind 'S' --to '#9' -y", session},
		{"tally undo 'S' -y", session},
		{"tally redo 'S' -y", session},
		{"tally fork 'S' --at '#9'", session},
		{"tally fork 'S' --as 'S'", session},
		{"tally append 'S' --expect @77 <turn", ""},
		{"echo '{\"id\":\"new\"}' | tally append 'S' --expect @77", session},
		{"tally append 'S' <other", ""},
		{"tally append 'S' <rewind", ""},
		{"tally append 'S' <subject", session},
		{"tally doc cat 'D' --at '#9'", "plans/a b.md"},
		{"tally doc cat 'doc/none/a b.md'", "none/a b.md"},
		{"echo x | tally doc put 'D' --create", "plans/a b.md"},
		{"echo x | tally doc put 'D' --base @99", "plans/a b.md"},
		{"tally doc diff 'D' '#1' '#7'", "plans/a b.md"},
		{"tally doc log 'doc/none/a b.md'", "none/a b.md"},
		{"tally doc rm 'doc/none/a b.md'", "none/a b.md"},
		{"tally doc mv 'doc/none/a b.md' 'doc/x'", "none/a b.md"},
		{"tally export 'S' --format errata -C out", session},
		{"tally inbox ls 'no body'", "no body"},
	} {
		t.Run("B-26 "+c.run, func(t *testing.T) {
			testkit.Sample(t, 6)
			run := strings.NewReplacer("'S'", "'"+session+"'", "'D'", "'"+doc+"'").Replace(c.run)
			out := runCase(t, env, caseStep{run: "{ " + run + "; } 2>&1; code=$?; echo; echo \"code $code\"; true"})
			if found := ofTheLog.FindString(out); found != "" {
				t.Errorf("%s: got the log's name %q:\n%s", run, found, out)
			}
			if !strings.Contains(out, c.named) {
				t.Errorf("%s: want the name %s:\n%s", run, c.named, out)
			}
			t.Logf("%s", out)
		})
	}
}

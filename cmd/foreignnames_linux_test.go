package cmd_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// Ids of sessions and names of files in events cannot make tally write outside of the user's target, and no link on
// the way is followed out of it.
func TestForeignNames(t *testing.T) {
	folder, err := filepath.Abs("testdata/cases/31-secrets-by-name")
	if err != nil {
		t.Fatal(err)
	}
	env := caseEnv(t, folder)
	home := homeOf(env)
	runCase(t, env, caseStep{run: "tally watch --once"})
	list := runCase(t, env, caseStep{run: "tally log last -o jsonl"})
	const id = "11111111-1111-4111-8111-111111111111"
	write := func(t *testing.T, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// as appends the events of the session to another one, with other names of its files.
	as := func(t *testing.T, session, file string) {
		t.Helper()
		var lines strings.Builder
		for line := range strings.Lines(list) {
			var logged struct{ Event map[string]any }
			if err := json.Unmarshal([]byte(line), &logged); err != nil {
				t.Fatal(err)
			}
			logged.Event["subject"] = "session/" + events.EscapeID(session)
			if at, ok := logged.Event["tallyline"].(string); ok {
				logged.Event["tallyline"] = strings.Replace(at, "-srv-shop/"+id+".jsonl", file, 1)
			}
			text, err := json.Marshal(logged.Event)
			if err != nil {
				t.Fatal(err)
			}
			lines.Write(append(text, '\n'))
		}
		write(t, "events", lines.String())
		runCase(t, env, caseStep{run: "tally append <events"})
	}
	before := filesOf(t, home)
	for _, session := range []string{
		"claude/../../../outside/" + id, "claude/../" + id, "claude//etc/" + id, "claude/-srv/../../x/" + id, "claude/a\\..\\b/" + id, "claude/./" + id, "claude//" + id,
		"claude/" + id, "claude", "claude/x\ny/" + id, "claude/-srv-shop/../../" + id, "claude/..../..", "claude/" + strings.Repeat("p", 300) + "/" + id,
	} {
		t.Run("B-05 fork of "+session, func(t *testing.T) {
			testkit.Sample(t, 4)
			as(t, session, "-srv-shop/"+id+".jsonl")
			write(t, "id", session)
			runCase(t, env, caseStep{run: `tally fork "$(cat id)" --as claude-code 2>&1`, exit: 2, has: []string{`Nothing was written|no line of`}, lacks: []string{"begins as"}})
			mustHave(t, home, before)
		})
	}
	for _, file := range []string{"../../../outside.jsonl", "/tmp/tally-outside.jsonl", "..\\outside.jsonl", "-srv-shop/../../../outside.jsonl", "linked/x.jsonl"} {
		t.Run("B-05 export of a file "+file, func(t *testing.T) {
			testkit.Sample(t, 2)
			session := "claude/-srv-shop/" + events.DerivedID("x", file)
			as(t, session, file)
			if err := os.MkdirAll(filepath.Join(home, "out"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("..", filepath.Join(home, "out/linked")); err != nil {
				t.Fatal(err)
			}
			runCase(t, env, caseStep{run: "tally export '" + session + "' --format claude-code -C out >/dev/null 2>&1; tally export '" + session + "' --format tallydir -C out >/dev/null 2>&1; true"})
			if err := os.RemoveAll(filepath.Join(home, "out")); err != nil {
				t.Fatal(err)
			}
			mustHave(t, home, before)
		})
	}
	t.Run("B-05 a link in the place of a project", func(t *testing.T) {
		project := filepath.Join(home, ".claude/projects/-srv-shop")
		if err := os.Rename(project, project+".old"); err != nil {
			t.Fatal(err)
		}
		elsewhere := t.TempDir()
		if err := os.Symlink(elsewhere, project); err != nil {
			t.Fatal(err)
		}
		runCase(t, env, caseStep{run: "tally fork claude/-srv-shop/" + id + " --as claude-code 2>&1", exit: 1, has: []string{"is not written: .*escapes"}})
		if got := filesOf(t, elsewhere); len(got) > 0 {
			t.Errorf("the link's target: got %v", got)
		}
	})
}

func homeOf(env []string) string {
	for _, entry := range env {
		if home, ok := strings.CutPrefix(entry, "HOME="); ok {
			return home
		}
	}
	return ""
}

// filesOf returns the paths below a folder, except those that tests write.
func filesOf(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if name := d.Name(); err == nil && path != dir && name != "events" && name != "id" {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// mustHave fails if a file was added to a home, or beside it.
func mustHave(t *testing.T, home string, before []string) {
	t.Helper()
	if now := filesOf(t, home); len(now) != len(before) {
		t.Errorf("the home: got %q, want %q", now, before)
	}
	for _, path := range []string{filepath.Join(filepath.Dir(home), "outside"), filepath.Join(filepath.Dir(home), "outside.jsonl"), "/tmp/tally-outside.jsonl", filepath.Join(filepath.Dir(home), "x")} {
		if exists(path) {
			t.Errorf("%s was written", path)
		}
	}
}

package redact_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/ingest/redact"
	"github.com/tallylog/tally/internal/testkit"
)

func mustNew(t testing.TB, o redact.Options) *redact.Redactor {
	t.Helper()
	r, err := redact.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// eachLine visits the lines of the files below a folder with one of the given name endings.
func eachLine(t testing.TB, root string, visit func(path string, line []byte), ends ...string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		for _, end := range ends {
			if !strings.HasSuffix(path, end) {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for line := range bytes.Lines(text) {
				visit(path, bytes.TrimSuffix(line, []byte("\n")))
			}
			return nil
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// agentLines returns the lines of the recorded sessions.
func agentLines(t testing.TB) [][]byte {
	var lines [][]byte
	for _, name := range []string{"agents", "claude"} {
		eachLine(t, testkit.Data(t, name), func(_ string, line []byte) { lines = append(lines, line) }, ".jsonl", ".json", ".log")
	}
	return lines
}

// shownSecrets are the user names and passwords of examples in Go's source, and the keys of its test vectors. They are
// the only matches there.
var shownSecrets = []string{"aladdin:opensesame@", "YWxhZGRpbjpvcGVuc2VzYW1l", "My%20Pass@", "pa%2Fssword@", "foo:bar@", "p%40ssword@", "pa%3Fsword@", "passwo^rd@",
	`"shared_secret": "`, `"exporter_secret": "`}

// At most one match in 10 MB of source is false. (REDACT_CORPUS names further folders; -v prints each match.)
func TestFalseHitsInSource(t *testing.T) {
	testkit.Long(t)
	testkit.OnlyFull(t, "it reads all of Go's source; TestNoSecrets has lines of each kind")
	roots := []string{filepath.Join(goroot(t), "src")}
	if more := os.Getenv("REDACT_CORPUS"); more != "" {
		roots = append(roots, strings.Split(more, ":")...)
	}
	r := mustNew(t, redact.Options{})
	for n, root := range roots {
		size, hits := 0, map[string]int{}
		eachLine(t, root, func(path string, line []byte) {
			size += len(line) + 1
			out, found := r.Line(line)
			shown := slices.ContainsFunc(shownSecrets, func(s string) bool { return bytes.Contains(line, []byte(s)) })
			for _, f := range found {
				if !shown {
					hits[f.Rule] += f.Count
				}
				t.Logf("%s: %v\n\t%.200s\n\t%.200s", path, f, line, out)
			}
		}, "")
		total := 0
		for _, n := range hits {
			total += n
		}
		t.Logf("%s: %d MB, hits beside the examples %v", root, size/1e6, hits)
		if n == 0 && (total > size/1e7 || size < 10e6) {
			t.Errorf("%d hits in %d MB", total, size/1e6)
		}
	}
}

// The recorded sessions contain no secrets, because their owners removed them.
func TestAgentsHaveNone(t *testing.T) {
	r := mustNew(t, redact.Options{})
	for _, line := range agentLines(t) {
		if out, found := r.Line(line); found != nil {
			t.Errorf("%v: got %.300s", found, out)
		}
	}
}

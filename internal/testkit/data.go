package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// DataVar names the folder of recorded data, which is not part of the repository. Default: shared/data beside it.
const DataVar = "TALLY_DATA"

// DataRoot returns the folder of recorded data, and whether it exists.
func DataRoot(t testing.TB) (string, bool) {
	t.Helper()
	root := os.Getenv(DataVar)
	if root == "" {
		root = filepath.Join(Module(t), "..", "shared", "data")
	}
	_, err := os.Stat(root)
	return root, err == nil || os.Getenv(DataVar) != ""
}

// Data returns a file or folder of the recorded data. If there are none at all, it skips the test with a message that
// names the file. If only this one is missing, the test fails in CI.
func Data(t testing.TB, name ...string) string {
	t.Helper()
	root, there := DataRoot(t)
	what := "recorded data " + strings.Join(name, "/") + " in " + root + " (set " + DataVar + " to have it elsewhere)"
	if !there {
		t.Skip("this needs " + what)
	}
	path := filepath.Join(append([]string{root}, name...)...)
	_, err := os.Stat(path)
	Needs(t, err == nil, what)
	return path
}

// Module returns the root folder of the tested module.
func Module(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

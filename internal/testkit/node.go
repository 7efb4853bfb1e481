package testkit

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Node runs a program of Node.js, and returns what it prints. A program that fails ends
// the test with what it said about it. A machine without Node.js skips the test.
func Node(t testing.TB, stdin io.Reader, args ...string) []byte {
	t.Helper()
	_, err := exec.LookPath("node")
	Needs(t, err == nil, "node")
	for _, name := range args {
		if filepath.Ext(name) == ".mjs" {
			_, _ = os.ReadDir(filepath.Dir(name)) // or go test would take its last result for good after a change there
		}
	}
	c := exec.CommandContext(t.Context(), "node", args...)
	var out, errw bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = stdin, &out, &errw
	if err := c.Run(); err != nil {
		t.Fatalf("node %q: %v\n%s%s", args, err, errw.Bytes(), out.Bytes())
	}
	return out.Bytes()
}

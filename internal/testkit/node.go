package testkit

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Node runs a program of Node.js, and returns what it prints. A program that fails ends
// the test with what it said about it. A machine without Node.js skips the test.
func Node(t testing.TB, stdin io.Reader, args ...string) []byte {
	t.Helper()
	_, err := exec.LookPath("node")
	Needs(t, err == nil, "node")
	for _, name := range args {
		if ext := filepath.Ext(name); ext == ".mjs" || ext == ".mts" {
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

// TypeScript compiles a program, with its types checked, and returns the path of what Node runs.
// A machine without the compiler, which comes with the packages of the Node.js client, skips
// the test.
func TypeScript(t testing.TB, name string) string {
	t.Helper()
	modules := filepath.Join(Module(t), "cmd", "testdata", "node", "node_modules")
	compiler := filepath.Join(modules, "typescript", "bin", "tsc")
	_, err := os.Stat(compiler)
	Needs(t, err == nil, "typescript: npm ci in cmd/testdata/node")
	dir := t.TempDir()
	Node(t, nil, compiler, "--target", "es2022", "--module", "nodenext", "--strict", "--typeRoots", filepath.Join(modules, "@types"), "--types", "node", "--outDir", dir, name)
	return filepath.Join(dir, strings.TrimSuffix(filepath.Base(name), ".mts")+".mjs")
}

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

// Node runs a program of Node.js, and returns its output. If the program fails, the test ends with the program's error
// output. On a machine without Node.js the test is skipped.
func Node(t testing.TB, stdin io.Reader, args ...string) []byte {
	t.Helper()
	_, err := exec.LookPath("node")
	Needs(t, err == nil, "node")
	for _, name := range args {
		if ext := filepath.Ext(name); ext == ".mjs" || ext == ".mts" {
			_, _ = os.ReadDir(filepath.Dir(name)) // otherwise go test would use its cached result after a change there
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

// TypeScript compiles a program, with type checks, and returns the path of the result for Node. On a machine without
// the compiler, which is one of the packages of the Node.js client, the test is skipped.
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

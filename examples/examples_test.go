package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// TestExamples compares what each program prints with the file output.txt beside it.
func TestExamples(t *testing.T) {
	testkit.OnlyFull(t, "each program links the server; the tests of stores/tavern make the same calls")
	files, err := filepath.Glob("*/output.txt")
	if err != nil || len(files) < 4 {
		t.Fatalf("got files %v, %v", files, err)
	}
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", bin, "./...").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, name))
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
			cmd.Stderr = os.Stderr
			if got, err := cmd.Output(); err != nil || string(got) != string(want) {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		})
	}
}

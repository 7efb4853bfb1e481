package evals_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/evals"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

func TestConfiguration(t *testing.T) {
	t.Run("T-01 nothing is there and nothing is written", testNothing)
	t.Run("T-02 three configuration files, one program", testThreeFiles)
	t.Run("T-36 what the original reads", testOriginalConfiguration)
	eachParity(t, []parity{{"T-37 projects with equal ids", testProjects}})
}

// alone returns an environment without settings of its own.
func alone(t *testing.T) (dir string) {
	t.Helper()
	home := t.TempDir()
	for _, name := range config.Variables() {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "data"))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "config"))
	return t.TempDir()
}

func testNothing(t *testing.T) {
	dir := alone(t)
	st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir, Backend: "memory"})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if list, err := evals.List(t.Context(), st); err != nil || len(list) != 0 {
		t.Errorf("got %v, error %v", list, err)
	}
	if st.Base() != filepath.Join(dir, ".tally") {
		t.Errorf("base %s", st.Base())
	}
	local, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	for info, err := range local.Subjects(t.Context(), "") { // the log's own directory exists and is empty
		t.Errorf("got the subject %v, error %v", info, err)
	}
	if files := layouttest.ReadTree(t, dir); len(files) != 0 {
		t.Errorf("opening wrote files into the project: %v", files)
	}
}

// The same code works on the store that the nearest tally.toml names.
func testThreeFiles(t *testing.T) {
	testkit.NotUnderRace(t) // the race run omits one of the backends
	seen := make(map[string]bool)
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		c, saved, err := evals.Save(t.Context(), st, "c1", &evals.Data{ID: "c1", Steps: stepsOf(2)})
		if err != nil || !saved.Created {
			t.Fatalf("got %+v, error %v", saved, err)
		}
		if got := texts(mustContent(t, c)); got != "turn 0,turn 1" {
			t.Errorf("got %s", got)
		}
		seen[t.Name()] = true
	})
	if len(seen) == 0 || testkit.IsWhole() && len(seen) != 3 {
		t.Errorf("the code ran on the backends %v, want one, and all three in the full tier", seen)
	}
}

func testOriginalConfiguration(t *testing.T) {
	checkConfigFix(t)
	dir := alone(t)
	deep := filepath.Join(dir, "packages", "app")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tally.config.ts", "tally.config.js", "tally.config.mjs", "tally.config.cjs"} {
		file := filepath.Join(dir, name)
		mustWrite(t, file, "export default { storage: { backend: 'redis' } } // and whatever else a program can do")
		warned := warnings(t, deep, "memory")
		if strings.Count(warned, file) != 1 || strings.Count(warned, filepath.Join(dir, config.FileName)) != 1 {
			t.Errorf("%s: the warnings are\n%s", name, warned)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	// A tally.toml beside it takes precedence.
	mustWrite(t, filepath.Join(dir, "tally.config.ts"), "")
	mustWrite(t, filepath.Join(dir, config.FileName), "namespace = \"from-file\"\n[store]\nbackend = \"memory\"\n")
	if warned := warnings(t, deep, ""); warned != "" {
		t.Errorf("the warnings are\n%s", warned)
	}
	// The variables of the original.
	t.Setenv("TALLY_STORAGE_PATH", "elsewhere/.tally-dev")
	t.Setenv("TALLY_STORAGE_BACKEND", "redis")
	if warned := warnings(t, deep, ""); strings.Count(warned, "TALLY_STORAGE_BACKEND=redis") != 1 {
		t.Errorf("the warnings are\n%s", warned)
	}
	if c := mustResolve(t, deep, config.Overrides{}); c.Base != filepath.Join(deep, "elsewhere", ".tally-dev") || c.Backend != config.Memory {
		t.Errorf("got %+v", c) // a path alone does not select a backend
	}
	// default < file < environment < call
	if c := mustResolve(t, deep, config.Overrides{}); c.Namespace != "from-file" {
		t.Errorf("with the file: %q", c.Namespace)
	}
	t.Setenv("TALLY_NAMESPACE", "from-env")
	if c := mustResolve(t, deep, config.Overrides{}); c.Namespace != "from-env" {
		t.Errorf("with the environment: %q", c.Namespace)
	}
	if c := mustResolve(t, deep, config.Overrides{Namespace: "from-call"}); c.Namespace != "from-call" {
		t.Errorf("with the call: %q", c.Namespace)
	}
}

// checkConfigFix: a broken file is an error here. The original warns and continues with defaults.
func checkConfigFix(t *testing.T) {
	t.Helper()
	const broken = "[store]\nbackend = \"memory\"\nnonsense = 1\n"
	refuses := func(open func(dir string) error) error {
		dir := alone(t)
		mustWrite(t, filepath.Join(dir, config.FileName), broken)
		e, ok := errors.AsType[*config.Error](open(dir))
		if !ok || e.File != filepath.Join(dir, config.FileName) || e.Line != 3 || e.Field != "store.nonsense" {
			return fmt.Errorf("got %v", e)
		}
		return nil
	}
	if err := refuses(func(dir string) error {
		st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir})
		if err == nil {
			_ = st.Close()
		}
		return err
	}); err != nil {
		t.Errorf("tally: %v", err)
	}
	warnAndGoOn := func(string) error { return nil }
	if refuses(warnAndGoOn) == nil {
		t.Error("the check passes for the original")
	}
}

func mustResolve(t *testing.T, dir string, o config.Overrides) config.Config {
	t.Helper()
	c, err := config.Resolve(dir, o, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// warnings opens a store and returns its warnings.
func warnings(t *testing.T, dir, backend string) string {
	t.Helper()
	var out bytes.Buffer
	lg := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir, Backend: backend, Logger: lg})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Two projects are two namespaces: an import into one never changes the other.
func testProjects(t *testing.T, st *tally.Store) {
	checkFix(t, st, fixProjects)
	one, two := need(st.In(st.Namespace()+"-one")), need(st.In(st.Namespace()+"-two"))
	files := func(text string) map[string]string {
		return map[string]string{"conversations/golden/conversation.jsonl": string(stepOf(0, text).Raw()), "conversations/golden/meta.json": fmt.Sprintf(`{"id":"golden","createdAt":"2026-01-01T00:00:00.00%dZ"}`, len(text))}
	}
	bring(t, one, files("one"))
	bring(t, two, files("second"))
	layouttest.MustEqual(t, files("one"), export(t, one))
	layouttest.MustEqual(t, files("second"), export(t, two))
	// An import into the same namespace is refused, and the first session stays.
	dir := layouttest.WriteTree(t, t.TempDir(), 0o644, files("three"))
	if r, err := (tallydir.Layout{}).Import(t.Context(), one, dir, layouts.ImportOptions{}); err != nil || len(r.Refused) != 1 {
		t.Errorf("got %+v, error %v", r, err)
	}
	layouttest.MustEqual(t, files("one"), export(t, one))
	if got := texts(mustContent(t, evals.Of(one, "golden"))); got != "one" {
		t.Errorf("got %s", got)
	}
}

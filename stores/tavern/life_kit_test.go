package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/stores/tavern"
)

// lifeSession is the id of the vendor's session.
const lifeSession = "5c0375b4-57a5-4f26-b12d-d022ee4e51b7"

// lifeLine returns the n-th message of a transcript, n seconds past ten.
func lifeLine(cwd, role string, n int, content string) string {
	return fmt.Sprintf(`{"type":%q,"uuid":"u%d","parentUuid":null,"sessionId":%q,"timestamp":"2026-08-22T10:%02d:%02d.000Z","cwd":%q,"gitBranch":"main","version":"2.1.7","message":{"role":%q,"content":%s}}`,
		role, n, lifeSession, n/60%60, n%60, cwd, role, content)
}

// lifeFolder makes a folder of projects with files of lines.
func lifeFolder(t testing.TB, files map[string][]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, list := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(strings.Join(list, "\n")+"\n"), 0o600))
	}
	return dir
}

// lifeImport imports the transcripts of a folder into a store.
func lifeImport(t *testing.T, st *tally.Store, dir string) {
	t.Helper()
	in, err := ingest.New(ingest.Options{Log: st.Log, Namespace: st.Namespace(), Sources: []ingest.Source{{Agent: claude.Agent{}, Root: dir}}, Once: true,
		Report: func(p ingest.Problem) { t.Errorf("import: %s", p) }})
	must(t, err)
	must(t, errors.Join(in.Run(t.Context()), in.Close()))
}

// lifeServer stands for the vendor: whether it has a session, and how often it was asked.
type lifeServer struct {
	has, deaf bool
	asked     int
}

func (s *lifeServer) probe(_ context.Context, b events.Binding) error {
	s.asked++
	switch {
	case s.deaf:
		return errors.New("no route to host")
	case s.has:
		return nil
	}
	return &tavern.Refusal{Reason: "session " + b.ID + " has expired"}
}

// lifeTime is a time of 2026-08-22.
func lifeTime(minute, second int) time.Time {
	return time.Date(2026, 8, 22, 10, minute, second, 0, time.UTC)
}

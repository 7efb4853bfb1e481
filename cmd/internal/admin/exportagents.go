package admin

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"strings"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// agentForm writes the session files of an agent.
type agentForm struct {
	agents.Agent
	reader ingest.Reader
}

var _ layouts.Picker = agentForm{}

// Name implements layouts.Renderer.
func (x agentForm) Name() string { return x.Format() }

// Picks implements layouts.Picker. It picks sessions with lines of the agent's files, but not forks that were made in
// the store.
func (x agentForm) Picks(ctx context.Context, s *projector.Session) (bool, error) {
	if s.Ledger.Kind != events.KindTranscript || !strings.HasPrefix(s.Subject.ID, x.Agent.Name()+"/") {
		return false, nil
	}
	list, err := ingest.Files(ctx, x.reader, x.Agent, s.Subject)
	return len(list) > 0, err
}

// Files implements layouts.Renderer. The files contain rewound turns, too, because the agent wrote them.
func (x agentForm) Files(ctx context.Context, _ layouts.Source, s *projector.Session) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		list, err := ingest.Files(ctx, x.reader, x.Agent, s.Subject)
		if err != nil {
			yield(layouts.File{Path: layouts.FileName(s.Subject.ID)}, err)
			return
		}
		for _, f := range list {
			write := func(w io.Writer) error { return f.Write(ctx, w) }
			if !yield(layouts.File{Path: f.Name, Mode: 0o600, Way: layouts.Exact, Problem: lack(f), Write: write}, nil) {
				return
			}
		}
	}
}

// lack describes what a file lacks of the agent's original, or returns "".
func lack(f ingest.Kept) string {
	var parts []string
	if f.Redacted > 0 {
		parts = append(parts, plain.Count(f.Redacted, "line")+" had secrets removed before they were stored")
	}
	if f.Missing > 0 {
		parts = append(parts, plain.Count(int(f.Missing), "byte")+" were never read")
	}
	return strings.Join(parts, "; ")
}

// RootFiles implements layouts.Renderer. It yields no file.
func (agentForm) RootFiles(context.Context, layouts.Source, string) iter.Seq2[layouts.File, error] {
	return func(func(layouts.File, error) bool) {}
}

// careful is a storage that never replaces a file, because the agent may still write to it.
type careful struct{ layouts.Storage }

var errThere = errors.New("another file is there, and was not replaced")

// Write implements layouts.Storage.
func (c careful) Write(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) error {
	switch _, err := c.Stat(ctx, name); {
	case err == nil:
		return errThere
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return c.Storage.Write(ctx, name, mode, content)
}

// agent returns the agent whose files are exported.
func (x *exporter) agent() (agents.Agent, bool) {
	a, ok := cmdutil.AgentNamed(x.format)
	return a, ok && a.Format() == x.format
}

func (x *exporter) isAgents() bool {
	_, ok := x.agent()
	return ok
}

// storage returns the storage that files are written to.
func (x *exporter) storage(dir layouts.Storage) layouts.Storage {
	if x.isAgents() {
		return careful{dir}
	}
	return dir
}

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

// agentForm writes the files that an agent kept its sessions in.
type agentForm struct {
	agents.Agent
	reader ingest.Reader
}

var _ layouts.Picker = agentForm{}

// Name implements layouts.Renderer.
func (x agentForm) Name() string { return x.Format() }

// Picks implements layouts.Picker: a session that lines of the agent's came to, and not one
// that was forked of such in the store.
func (x agentForm) Picks(ctx context.Context, s *projector.Session) (bool, error) {
	if s.Ledger.Kind != events.KindTranscript || !strings.HasPrefix(s.Subject.ID, x.Agent.Name()+"/") {
		return false, nil
	}
	list, err := ingest.Files(ctx, x.reader, x.Agent, s.Subject)
	return len(list) > 0, err
}

// Files implements layouts.Renderer. What was rewound in the store is in them: they are
// what the agent wrote.
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

// lack says what a file has no more of what was read, "" if it has all.
func lack(f ingest.Kept) string {
	var parts []string
	if f.Redacted > 0 {
		parts = append(parts, plain.Count(f.Redacted, "line")+" had secrets taken out before they were stored")
	}
	if f.Missing > 0 {
		parts = append(parts, plain.Count(int(f.Missing), "byte")+" never came")
	}
	return strings.Join(parts, "; ")
}

// RootFiles implements layouts.Renderer: there are none.
func (agentForm) RootFiles(context.Context, layouts.Source, string) iter.Seq2[layouts.File, error] {
	return func(func(layouts.File, error) bool) {}
}

// careful is a storage in which no file is replaced: an agent may go on with it.
type careful struct{ layouts.Storage }

var errThere = errors.New("another file is there, and was left alone")

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

// agent returns the agent whose files are asked for.
func (x *exporter) agent() (agents.Agent, bool) {
	a, ok := cmdutil.AgentNamed(x.format)
	return a, ok && a.Format() == x.format
}

func (x *exporter) isAgents() bool {
	_, ok := x.agent()
	return ok
}

// storage is what files are written to.
func (x *exporter) storage(dir layouts.Storage) layouts.Storage {
	if x.isAgents() {
		return careful{dir}
	}
	return dir
}

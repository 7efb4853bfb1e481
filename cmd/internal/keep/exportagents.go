package keep

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"strings"

	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// agentForm writes the files that an agent kept its sessions in.
type agentForm struct {
	agents.Agent
	reader ingest.Reader
}

var _ formats.Picker = agentForm{}

// Name implements formats.Renderer.
func (x agentForm) Name() string { return x.Format() }

// Picks implements formats.Picker: a session that lines of the agent's came to, and not one
// that was forked of such in the store.
func (x agentForm) Picks(ctx context.Context, s *projector.Session) (bool, error) {
	if s.Ledger.Kind != events.KindTranscript || !strings.HasPrefix(s.Subject.ID, x.Agent.Name()+"/") {
		return false, nil
	}
	list, err := ingest.Files(ctx, x.reader, x.Agent, s.Subject)
	return len(list) > 0, err
}

// Files implements formats.Renderer. What was rewound in the store is in them: they are
// what the agent wrote.
func (x agentForm) Files(ctx context.Context, _ formats.Source, s *projector.Session) iter.Seq2[formats.File, error] {
	return func(yield func(formats.File, error) bool) {
		list, err := ingest.Files(ctx, x.reader, x.Agent, s.Subject)
		if err != nil {
			yield(formats.File{Path: formats.FileName(s.Subject.ID)}, err)
			return
		}
		for _, f := range list {
			write := func(w io.Writer) error { return f.Write(ctx, w) }
			if !yield(formats.File{Path: f.Name, Mode: 0o600, Way: formats.Exact, Problem: lack(f), Write: write}, nil) {
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

// RootFiles implements formats.Renderer: there are none.
func (agentForm) RootFiles(context.Context, formats.Source, string) iter.Seq2[formats.File, error] {
	return func(func(formats.File, error) bool) {}
}

// careful is a storage in which no file is replaced: an agent may go on with it.
type careful struct{ formats.Storage }

var errThere = errors.New("another file is there, and was left alone")

// Write implements formats.Storage.
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
	a, ok := app.AgentNamed(x.format)
	return a, ok && a.Format() == x.format
}

func (x *exporter) isAgents() bool {
	_, ok := x.agent()
	return ok
}

// storage is what files are written to.
func (x *exporter) storage(dir formats.Storage) formats.Storage {
	if x.isAgents() {
		return careful{dir}
	}
	return dir
}

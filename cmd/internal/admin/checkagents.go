package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// compared says what became of comparing agents' files with the log.
type compared struct {
	Files    int   `json:"files"`              // that the log has
	Equal    int   `json:"equal"`              // as far as the log has them
	Gone     int   `json:"gone,omitempty"`     // that are not there any more
	Redacted int   `json:"redacted,omitempty"` // that cannot be compared, as something was taken out
	Behind   int64 `json:"behind,omitempty"`   // bytes of files that the log does not have yet
}

// text says it in a line.
func (c *compared) text() string {
	parts := []string{plain.Count(c.Equal, "file") + " of agents as the log has them"}
	if c.Behind > 0 {
		parts = append(parts, plain.Bytes(c.Behind)+" not in the store yet")
	}
	if c.Gone > 0 {
		parts = append(parts, fmt.Sprintf("%d gone", c.Gone))
	}
	if c.Redacted > 0 {
		parts = append(parts, fmt.Sprintf("%d not compared, as secrets were taken out", c.Redacted))
	}
	return strings.Join(parts, ", ")
}

// verifyAgents compares the files of agents that are there with what the log has of them,
// byte for byte. One that went on since is equal as far as the log has it.
func verifyAgents(ctx context.Context, st *tally.Store, env func(string) string) (c compared, findings []projector.Finding, err error) {
	for sub, err := range sessionsOf(ctx, st) {
		if err != nil {
			return c, findings, err
		}
		agent, ok := agentOf(sub.ID)
		if !ok {
			continue
		}
		files, err := ingest.Files(ctx, st.Log, agent, sub)
		if err != nil {
			return c, findings, err
		}
		for i := range files {
			what, err := c.compare(ctx, agent.Roots(env), &files[i])
			if err != nil {
				return c, findings, err
			}
			if what != "" {
				findings = append(findings, projector.Finding{Subject: sub.String(), What: files[i].Name + ": " + what})
			}
		}
	}
	return c, findings, nil
}

// agentOf returns the agent whose session has an id.
func agentOf(id string) (agents.Agent, bool) {
	name, _, ok := strings.Cut(id, "/")
	a, known := cmdutil.AgentNamed(name)
	return a, ok && known && a.Name() == name
}

// sessionsOf lists the sessions of a store's namespace.
func sessionsOf(ctx context.Context, st *tally.Store) func(func(events.Subject, error) bool) {
	return func(yield func(events.Subject, error) bool) {
		for info, err := range st.Subjects(ctx, events.KindSession) {
			if !yield(info.Subject, err) {
				return
			}
		}
	}
}

// compare compares a file, and returns what is wrong with it.
func (c *compared) compare(ctx context.Context, roots []string, k *ingest.Kept) (string, error) {
	c.Files++
	f, err := openBelow(roots, k.Name)
	if errors.Is(err, fs.ErrNotExist) {
		c.Gone++
		return "", nil
	}
	if err != nil {
		return "cannot be read: " + err.Error(), nil
	}
	defer f.Close()
	switch {
	case k.Missing > 0:
		return plain.Count(int(k.Missing), "byte") + " of it never came into the log", nil
	case k.Redacted > 0:
		c.Redacted++
		return "", nil
	}
	w := &comparing{file: f}
	switch err := k.Write(ctx, w); {
	case errors.Is(err, errDiffers):
		return fmt.Sprintf("it is not what the log has, from byte %d on: a watch has not seen what became of it", w.at), nil
	case err != nil:
		return "", err
	}
	rest, err := io.Copy(io.Discard, f)
	if err != nil {
		return "cannot be read: " + err.Error(), nil
	}
	c.Equal++
	c.Behind += rest
	return "", nil
}

// openBelow opens a file below the first root that has it. No link leads out.
func openBelow(roots []string, name string) (*os.File, error) {
	for _, root := range roots {
		dir, err := os.OpenRoot(root)
		if err != nil {
			continue // it has none
		}
		f, err := dir.Open(filepath.FromSlash(name))
		dir.Close()
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, fs.ErrNotExist
}

// comparing wants what is written to it to be what a file has next.
type comparing struct {
	file io.Reader
	at   int64 // up to here it is
	have []byte
}

var errDiffers = errors.New("it differs")

// Write implements io.Writer.
func (c *comparing) Write(p []byte) (int, error) {
	if cap(c.have) < len(p) {
		c.have = make([]byte, len(p))
	}
	have := c.have[:len(p)]
	n, err := io.ReadFull(c.file, have)
	for i := range have[:n] {
		if have[i] != p[i] {
			c.at += int64(i)
			return i, errDiffers
		}
	}
	c.at += int64(n)
	if err != nil {
		return n, errDiffers // it ends before
	}
	return n, nil
}

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

// compared counts the files of agents that were compared with the log.
type compared struct {
	Files    int   `json:"files"`              // files in the log
	Equal    int   `json:"equal"`              // files that equal the log, as far as the log has them
	Gone     int   `json:"gone,omitempty"`     // files that do not exist any more
	Redacted int   `json:"redacted,omitempty"` // files that cannot be compared, because secrets were removed
	Erased   int   `json:"erased,omitempty"`   // files that cannot be compared, because content was erased
	Behind   int64 `json:"behind,omitempty"`   // bytes that the log does not have yet
}

// text returns the counts as a line of text.
func (c *compared) text() string {
	parts := []string{plain.Count(c.Equal, "file") + " of agents equal to the log"}
	if c.Behind > 0 {
		parts = append(parts, plain.Bytes(c.Behind)+" not in the store yet")
	}
	if c.Gone > 0 {
		parts = append(parts, fmt.Sprintf("%d gone", c.Gone))
	}
	if c.Redacted > 0 {
		parts = append(parts, fmt.Sprintf("%d not compared, because secrets were removed", c.Redacted))
	}
	if c.Erased > 0 {
		parts = append(parts, fmt.Sprintf("%d not compared, because content was erased", c.Erased))
	}
	return strings.Join(parts, ", ")
}

// verifyAgents compares existing files of agents with the log, byte for byte. A file that grew since is equal if the
// log's part of it is.
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

// agentOf returns the agent of the session with an id.
func agentOf(id string) (agents.Agent, bool) {
	name, _, ok := strings.Cut(id, "/")
	a, known := cmdutil.AgentNamed(name)
	return a, ok && known && a.Name() == name
}

// sessionsOf lists the sessions in the namespace of a store.
func sessionsOf(ctx context.Context, st *tally.Store) func(func(events.Subject, error) bool) {
	return func(yield func(events.Subject, error) bool) {
		for info, err := range st.Subjects(ctx, events.KindSession) {
			if !yield(info.Subject, err) {
				return
			}
		}
	}
}

// compare compares a file with the log, and returns the difference as text.
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
		return plain.Count(int(k.Missing), "byte") + " of it are missing in the log", nil
	case k.Redacted > 0:
		c.Redacted++
		return "", nil
	case k.Erased > 0:
		c.Erased++
		return "", nil
	}
	w := &comparing{file: f}
	switch err := k.Write(ctx, w); {
	case errors.Is(err, errDiffers):
		return fmt.Sprintf("it differs from the log from byte %d on: no watch has seen the change", w.at), nil
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

// openBelow opens a file below the first root that has it. Links do not lead out of the root.
func openBelow(roots []string, name string) (*os.File, error) {
	for _, root := range roots {
		dir, err := os.OpenRoot(root)
		if err != nil {
			continue // the root does not exist
		}
		f, err := dir.Open(filepath.FromSlash(name))
		dir.Close()
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, fs.ErrNotExist
}

// comparing is a writer that compares the written bytes with the content of a file.
type comparing struct {
	file io.Reader
	at   int64 // number of equal bytes
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
		return n, errDiffers // the file ends before
	}
	return n, nil
}

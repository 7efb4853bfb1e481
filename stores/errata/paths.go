package errata

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/filename"
)

// layoutName is the layout of errata's data folder. headless is the session whose only file is the checkpoint beside
// the sessions.
const (
	layoutName = "errata"
	headless   = "headless"
)

// keepFiles makes the data folder of the paths follow the store, if the store keeps trees.
func (o Options) keepFiles(ctx context.Context, st *tally.Store) error {
	dir, err := o.dataFolder()
	if err != nil || dir == "" {
		return err
	}
	err = st.KeepFiles(ctx, layoutName, dir)
	if errors.Is(err, tally.ErrNoTrees) {
		return nil // the paths are only names
	}
	return err
}

// dataFolder returns the folder in which the paths have errata's layout, "" without paths.
func (o Options) dataFolder() (dir string, err error) {
	own := filepath.Join("sessions", filename.Of(o.SessionID))
	checkpoint := filepath.Join(own, "checkpoint.json")
	if o.SessionID == headless {
		checkpoint = "checkpoint.json"
	}
	first := ""
	for _, p := range []struct{ field, path, inside string }{
		{"PromptHistPath", o.PromptHistPath, "prompt_history.jsonl"},
		{"SessionPaths.Dir", o.SessionPaths.Dir, own},
		{"SessionPaths.MetadataPath", o.SessionPaths.MetadataPath, filepath.Join(own, "session_metadata.json")},
		{"SessionPaths.ContentPath", o.SessionPaths.ContentPath, filepath.Join(own, "session_content.json")},
		{"SessionPaths.CheckpointPath", o.SessionPaths.CheckpointPath, checkpoint},
		{"SessionPaths.RecipePath", o.SessionPaths.RecipePath, filepath.Join(own, "recipe.md")},
	} {
		if p.path == "" {
			continue
		}
		full, err := filepath.Abs(p.path)
		if err != nil {
			return "", err
		}
		in, ok := strings.CutSuffix(full, string(filepath.Separator)+p.inside)
		switch {
		case !ok:
			return "", &events.InvalidError{Field: p.field, Reason: fmt.Sprintf("%s: want %s in the data folder", p.path, p.inside)}
		case dir != "" && in != dir:
			return "", &events.InvalidError{Field: p.field, Reason: fmt.Sprintf("%s is in another data folder than %s", p.path, first)}
		}
		dir, first = in, p.path
	}
	return dir, nil
}

package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/tree/keeper"
	"github.com/tallylog/tally/log"
)

// TreeStatus is the printed status of a tree.
type TreeStatus struct {
	keeper.Status
	Mode       string  `json:"mode"`
	LagEvents  uint64  `json:"lagEvents"`
	LagSeconds float64 `json:"lagSeconds"`
}

// TreesAt returns the status of the trees that the configuration names.
func TreesAt(ctx context.Context, c config.Config) ([]TreeStatus, error) {
	list := []TreeStatus{}
	if c.Backend == config.Memory {
		return list, nil
	}
	for _, t := range c.Trees {
		said, err := keeper.Ask(ctx, c, t, keeper.VerbState, keeper.Question{})
		if err != nil && !errors.Is(err, log.ErrUnavailable) {
			return list, fmt.Errorf("tree %s: %w", t.Name, err)
		}
		s := TreeStatus{Status: said.Status, Mode: "async"}
		if t.Sync {
			s.Mode = "sync"
		}
		list = append(list, s)
	}
	return list, nil
}

// String returns the status as a sentence.
func (t TreeStatus) String() string {
	text := fmt.Sprintf("%s in %s, as of %v", plain.Count(t.Files, "file"), plain.Printable(t.Place), t.Shown)
	if t.LagEvents > 0 {
		text += fmt.Sprintf(", %s and %.1f s behind", plain.Count(int(t.LagEvents), "event"), t.LagSeconds)
	}
	out := 0
	for _, l := range t.LeftOut {
		out += l.Sessions
	}
	if out > 0 {
		text += ", " + plain.Count(out, "session") + " left out"
	}
	for _, n := range []struct {
		count int
		what  string
	}{{t.Conflicts, "conflict"}, {len(t.Skipped), "skipped path"}, {len(t.Stuck), "unwritten file"}} {
		if n.count > 0 {
			text += ", " + plain.Count(n.count, n.what)
		}
	}
	if t.PID == 0 {
		text += "; no process keeps it now"
	} else {
		text += fmt.Sprintf("; process %d, %s", t.PID, t.Watching)
	}
	for _, more := range []string{t.Asking, t.Error} {
		if more != "" {
			text += ": " + plain.Printable(more)
		}
	}
	return strings.TrimSuffix(text, ", ")
}

// TreeNamed returns the tree with a name. The empty name means the only tree.
func TreeNamed(c config.Config, name string) (config.Tree, error) {
	var names []string
	for _, t := range c.Trees {
		if t.Name == name || name == "" && len(c.Trees) == 1 {
			return t, nil
		}
		names = append(names, t.Name)
	}
	switch {
	case len(names) == 0:
		return config.Tree{}, &cli.CodeError{Code: cli.NotFound, Err: errors.New("no tree is configured here"), Hint: "tally init --tavern writes one into tally.toml."}
	case name == "":
		return config.Tree{}, cli.Usagef("which tree: %s?", Or(names))
	}
	return config.Tree{}, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no tree %q", name), Hint: "There is " + strings.Join(names, ", ") + "."}
}

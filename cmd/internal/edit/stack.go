package edit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/errata"
)

// stacked is an entry of the rewind stack, with rewind -o json.
type stacked struct {
	Steps  int           `json:"steps"` // value of --steps that removes this entry, from 1
	To     events.Offset `json:"to"`
	Run    string        `json:"run,omitempty"`
	Prompt string        `json:"prompt"`
	Files  int           `json:"files"` // files that its run wrote
}

// chooseSteps prints the rewind stack, the newest entry first. On a terminal it asks for a number; otherwise it returns
// an error with the flag to use.
func (m *mover) chooseSteps(ctx context.Context, s *errata.Session) (int, error) {
	entries, err := s.RewindStack(ctx)
	if err != nil {
		return 0, err
	}
	if len(entries) == 0 {
		return 0, &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("the rewind stack of %s is empty", s.Subject()), Hint: "Name a position with --to."}
	}
	var list []stacked
	for i := range entries {
		e := entries[len(entries)-1-i]
		list = append(list, stacked{i + 1, e.At, e.Run, e.Prompt, len(e.FileSnapshots)})
	}
	if err := m.offer(list); err != nil {
		return 0, err
	}
	if !cli.IsTerminal(m.app.In) {
		return 0, &cli.CodeError{Code: cli.BadUsage, Err: errors.New("this command asks how far to go back, and standard input is not a terminal"), Hint: "Add --steps N with a number of the list, or --to with a position."}
	}
	answer := m.app.Ask(fmt.Sprintf("How many runs to revert? [1-%d, nothing for none]", len(list)))
	n, err := strconv.Atoi(answer)
	switch {
	case answer == "":
		return 0, &cli.CodeError{Code: cli.Failed, Err: errors.New("nothing was written")}
	case err != nil || n < 1 || n > len(list):
		return 0, cli.Usagef("%q is not a number from 1 to %d", answer, len(list))
	}
	return n, nil
}

// offer prints the entries of a stack.
func (m *mover) offer(list []stacked) error {
	if m.app.Format != cli.Text {
		return cli.WriteList(m.app.Out, m.app.Format, list)
	}
	t := render.Table{Head: []string{"FLAG", "TO", "FILES", "PROMPT"}, Right: []int{2}, Cut: []int{3}, Drop: []int{2, 1}}
	for _, e := range list {
		t.Rows = append(t.Rows, []string{fmt.Sprintf("--steps %d", e.Steps), e.To.String(), strconv.Itoa(e.Files), e.Prompt})
	}
	return m.app.Table(t)
}

// workTree returns the folder in which files are restored.
func (m *mover) workTree() errata.WorkTree {
	return errata.WorkTree{Dir: m.tree, Report: func(path, kept string) {
		fmt.Fprintf(m.app.Err, "%s was changed since; it is kept as %s\n", plain.Printable(path), plain.Printable(kept))
	}}
}

// stackMove returns a move that also restores files and the rewind stack.
func (m *mover) stackMove(s *errata.Session) func(*errata.StackMove, error) (*plannedMove, error) {
	return func(move *errata.StackMove, err error) (*plannedMove, error) {
		if err != nil {
			return nil, err
		}
		return &plannedMove{Move: &move.Move, files: move.Files, make: func(ctx context.Context) (log.Ack, []errata.FileChange, error) {
			result, err := s.MoveStack(ctx, m.workTree(), move)
			return result.Ack, result.Files, err
		}}, nil
	}
}

func movedFiles(changes []errata.FileChange) []reads.MovedFile {
	var list []reads.MovedFile
	for _, c := range changes {
		f := reads.MovedFile{Path: c.Path, Action: c.Action, Kept: c.Kept}
		if c.Err != nil {
			f.Error = c.Err.Error()
		}
		list = append(list, f)
	}
	return list
}

// listFiles prints the effect of a move on files.
func listFiles(w io.Writer, changes []errata.FileChange) {
	if len(changes) == 0 {
		return
	}
	fmt.Fprintf(w, "files: %d\n", len(changes))
	for _, c := range changes {
		text := c.Action
		switch {
		case c.Err != nil:
			text = "not restored: " + c.Err.Error()
		case c.Changed:
			text += ", changed since and kept beside"
		}
		fmt.Fprintf(w, "  %s  %s\n", plain.Printable(c.Path), plain.Printable(text))
	}
}

// warnFiles prints the files that could not be restored. Without --tree this is not an error.
func (m *mover) warnFiles(out reads.Moved) error {
	failed := 0
	for _, f := range out.Files {
		if f.Error == "" {
			continue
		}
		failed++
		if m.tree != "" && !m.dryRun {
			fmt.Fprintf(m.app.Err, "%s: %s\n", plain.Printable(f.Path), plain.Printable(f.Error))
		}
	}
	switch {
	case failed == 0:
		return nil
	case m.tree == "":
		fmt.Fprintf(m.app.Err, "%s not restored: --tree names the folder.\n", plain.Count(failed, "file"))
		return nil
	}
	return cli.Silent(cli.Partial)
}

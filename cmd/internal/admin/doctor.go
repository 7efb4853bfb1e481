package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/render"
)

// level is how bad a finding is.
type level string

const (
	fine    level = "ok"
	warning level = "warning" // it works, and the user should know
	problem level = "problem" // it does not work, or records are lost
)

// finding is the result of a check.
type finding struct {
	Check string `json:"check"`
	Level level  `json:"level"`
	What  string `json:"what"`
	Do    string `json:"do,omitempty"`

	code int                         // exit code for a problem
	mend func(context.Context) error // repairs it; nil if doctor cannot
	does string                      // what mend does, in the past tense
}

// examined is the output of doctor.
type examined struct {
	Findings []finding `json:"findings"`
	Mended   []string  `json:"mended,omitempty"`
}

func newDoctor(a *cmdutil.App) *cobra.Command {
	mend, deep := false, false
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the store and its configuration, and say how to fix problems", Args: cobra.NoArgs,
		Long: `Check the store and its configuration, and say how to fix problems: the configuration,
the store directory and its permissions, the disk, the owner, lost records, the views,
the snapshots, the clock and the file of keys. Each check prints one sentence, and
what to do if it is not ok. Doctor does not open the store, and changes nothing.

--mend rebuilds views that cannot be read, removes broken snapshots, and removes files
that killed processes left. The log itself is not touched. Its owner repairs what it
can whenever it opens the log, and records that cannot be repaired are listed as lost.

--verify also opens the store, compares all views and snapshots with the log (see
tally verify), opens all sealed documents (see tally secrets check), and compares the
files of trees with the log (see tally tree verify).

The exit code is 0 if there is no problem, else that of the first problem: 2 for the
configuration or the file of keys, 7 for a store that cannot be used as it is, 8 for a
store of a newer version, 5 for damage, 3 for a missing key, 6 for a tree that waits for
a decision.`,
		Example: cmdutil.Examples("tally doctor", "tally doctor --mend", "tally doctor --verify -o json"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			e := examined{Findings: examine(cmd.Context(), a)}
			if mend {
				if err := e.mend(cmd.Context(), a); err != nil {
					return err
				}
			}
			if deep && e.storeCode() == cli.OK {
				if err := e.examineOpen(cmd.Context(), a); err != nil {
					return err
				}
			}
			return e.print(a)
		},
	}
	cmd.Flags().BoolVar(&mend, "mend", false, "rebuild views that cannot be read, and remove leftover files")
	cmd.Flags().BoolVar(&deep, "verify", false, "also open the store, and compare its views, snapshots and trees with the log")
	return cmd
}

// mend repairs what it can, and checks again.
func (e *examined) mend(ctx context.Context, a *cmdutil.App) error {
	if code := e.storeCode(); code == cli.BadUsage || code == cli.Unreachable || code == cli.Incompatible {
		return nil // the store cannot be used
	}
	for _, f := range e.Findings {
		if f.mend == nil {
			continue
		}
		if err := f.mend(ctx); err != nil {
			return err
		}
		e.Mended = append(e.Mended, f.does)
	}
	if len(e.Mended) > 0 {
		e.Findings = examine(ctx, a)
	}
	return nil
}

// examineOpen opens the store, and adds the results of the checks that need it open.
func (e *examined) examineOpen(ctx context.Context, a *cmdutil.App) error {
	return a.WithStillStore(ctx, func(st *tally.Store) error {
		x := &examination{ctx: ctx, app: a}
		for _, check := range openChecks {
			if err := check(x, st); err != nil {
				return err
			}
		}
		e.Findings = append(e.Findings, x.findings...)
		return nil
	})
}

// code returns the exit code: that of the first problem.
func (e *examined) code() int { return codeOf(e.Findings) }

// storeCode is code without problems of the keys. A store can be used without them.
func (e *examined) storeCode() int {
	return codeOf(slices.DeleteFunc(slices.Clone(e.Findings), func(f finding) bool { return f.Check == keysCheck }))
}

func codeOf(findings []finding) int {
	for _, f := range findings {
		if f.Level == problem {
			return f.code
		}
	}
	return cli.OK
}

// minFinding is the minimal width of a finding next to the name of its check.
const minFinding = 30

// say prints a text next to a label, or below it if the output is narrow.
func say(a *cmdutil.App, about, text string) {
	width, indent := cli.Width(a.Out), len(about)+1
	head := about + " "
	if render.Beyond(indent, width) < minFinding {
		if about = strings.TrimSpace(about); about != "" {
			fmt.Fprintln(a.Out, about)
		}
		head, indent = "  ", 2
	}
	for _, line := range render.Wrap(text, render.Beyond(indent, width)) {
		fmt.Fprintln(a.Out, head+line)
		head = strings.Repeat(" ", indent)
	}
}

func (e *examined) print(a *cmdutil.App) error {
	if a.Format != cli.Text {
		if err := cli.WriteJSON(a.Out, a.Format, e); err != nil {
			return err
		}
	} else {
		for _, m := range e.Mended {
			say(a, "mended  ", m)
		}
		for _, f := range e.Findings {
			say(a, fmt.Sprintf("%-8s %-14s", f.Level, f.Check), f.What)
			if f.Do != "" {
				say(a, strings.Repeat(" ", 23), "-> "+f.Do)
			}
		}
	}
	if code := e.code(); code != cli.OK {
		return cli.Silent(code)
	}
	return nil
}

// removeAll removes files. A missing file is not an error.
func removeAll(paths []string) error {
	var errs []error
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// baseNames lists the names of files, abbreviated after a few.
func baseNames(paths []string) string {
	const limit = 3
	names := make([]string, len(paths))
	for i, path := range paths {
		names[i] = filepath.Base(path)
	}
	slices.Sort(names)
	if len(names) > limit {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
	}
	return strings.Join(names, ", ")
}

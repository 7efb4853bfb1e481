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
	"github.com/tallylog/tally/internal/render/plain"
)

// level says how bad a remark is.
type level string

const (
	fine    level = "ok"
	warning level = "warning" // it works, and somebody should know
	problem level = "problem" // it does not work, or something is lost
)

// remark is what doctor says of one thing.
type remark struct {
	Check string `json:"check"`
	Level level  `json:"level"`
	What  string `json:"what"`
	Do    string `json:"do,omitempty"`

	code int                         // the exit code, of a problem
	mend func(context.Context) error // nil: there is nothing that doctor could do
	does string                      // what mend does, in the past tense
}

// examined is what doctor prints.
type examined struct {
	Remarks []remark `json:"remarks"`
	Mended  []string `json:"mended,omitempty"`
}

func newDoctor(a *cmdutil.App) *cobra.Command {
	mend, deep := false, false
	cmd := &cobra.Command{
		Use: "doctor", Short: "Examine the configuration, the store and its views, and say what to do", Args: cobra.NoArgs,
		Long: `Examine the configuration, the store directory and whose it is, the disk, the owner,
what is lost, the views, the snapshots, the clock and the file of keys, and say of each
whether it is well, in a sentence, and what to do. The store is not opened, and nothing
is changed.

With --mend what is made of the log is made anew where it cannot be read, and what
processes left that were killed is removed. The log itself is not touched: its owner
mends what can be mended whenever it opens it, and the rest is named as lost.
--verify opens the store and compares all of it with the log, as verify does, and what is
sealed with the keys, as secrets check does.

The exit code is 0 if there is no problem, else that of the first one: 2 for the
configuration or a file of keys that cannot be used, 7 for a store that cannot be used
as it is, 8 for one of a newer version, 5 for damage, 3 for a key that is missing.`,
		Example: cmdutil.Examples("tally doctor", "tally doctor --mend", "tally doctor --verify -o json"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			e := examined{Remarks: examine(cmd.Context(), a)}
			if mend {
				if err := e.mend(cmd.Context(), a); err != nil {
					return err
				}
			}
			if deep && e.storeCode() == cli.OK {
				if err := e.verify(cmd.Context(), a); err != nil {
					return err
				}
			}
			return e.print(a)
		},
	}
	cmd.Flags().BoolVar(&mend, "mend", false, "make views anew that cannot be read, and remove what is left over")
	cmd.Flags().BoolVar(&deep, "verify", false, "also open the store and compare its views and snapshots with the log")
	return cmd
}

// mend does what can be done, and looks again.
func (e *examined) mend(ctx context.Context, a *cmdutil.App) error {
	if code := e.storeCode(); code == cli.BadUsage || code == cli.Unreachable || code == cli.Incompatible {
		return nil // the store cannot be used
	}
	for _, r := range e.Remarks {
		if r.mend == nil {
			continue
		}
		if err := r.mend(ctx); err != nil {
			return err
		}
		e.Mended = append(e.Mended, r.does)
	}
	if len(e.Mended) > 0 {
		e.Remarks = examine(ctx, a)
	}
	return nil
}

// verify adds what verify finds.
func (e *examined) verify(ctx context.Context, a *cmdutil.App) error {
	return a.WithStillStore(ctx, func(st *tally.Store) error {
		v, err := verify(ctx, a, st)
		for _, f := range v.Findings {
			e.Remarks = append(e.Remarks, remark{Check: "verify", Level: problem, What: findingText(f), Do: "tally rebuild makes views and snapshots anew", code: cli.Integrity})
		}
		if err == nil && len(v.Findings) == 0 {
			e.Remarks = append(e.Remarks, remark{Check: "verify", Level: fine, What: plain.Count(v.Records, "record") + " read: views and snapshots match the log"})
		}
		if err != nil {
			return err
		}
		return e.verifyKeys(ctx, st)
	})
}

// code is the exit code: that of the first problem.
func (e *examined) code() int { return codeOf(e.Remarks) }

// storeCode is code without what is wrong with the keys: a store can be used without them.
func (e *examined) storeCode() int {
	return codeOf(slices.DeleteFunc(slices.Clone(e.Remarks), func(r remark) bool { return r.Check == keysCheck }))
}

func codeOf(remarks []remark) int {
	for _, r := range remarks {
		if r.Level == problem {
			return r.code
		}
	}
	return cli.OK
}

// leastRemark is the narrowest that a remark stands beside what it is about.
const leastRemark = 30

// say prints a text beside what it is about, or below that where there is little room.
func say(a *cmdutil.App, about, text string) {
	width, indent := cli.Width(a.Out), len(about)+1
	head := about + " "
	if render.Beyond(indent, width) < leastRemark {
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
		for _, r := range e.Remarks {
			say(a, fmt.Sprintf("%-8s %-14s", r.Level, r.Check), r.What)
			if r.Do != "" {
				say(a, strings.Repeat(" ", 23), "-> "+r.Do)
			}
		}
	}
	if code := e.code(); code != cli.OK {
		return cli.Silent(code)
	}
	return nil
}

// removeAll removes files, those that are gone already included.
func removeAll(paths []string) error {
	var errs []error
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// baseNames lists files, so many at most.
func baseNames(paths []string) string {
	const most = 3
	names := make([]string, len(paths))
	for i, path := range paths {
		names[i] = filepath.Base(path)
	}
	slices.Sort(names)
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

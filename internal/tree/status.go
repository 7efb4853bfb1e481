package tree

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
)

// Status is how a tree is.
type Status struct {
	Name     string
	Shown    events.Offset // as of which the files show the log, but for what is stuck
	Files    int
	Units    int  // sessions and documents that have files
	Met      bool // every file was looked at since the tree remembers anything: what comes now is new
	Noticed  int  // paths that may have changed, and are about to be looked at
	Skipped  []layouts.Problem
	LeftOut  []LeftOut
	Stuck    []*Error
	Asking   *BulkError // nil: it does not ask
	Watching string     // how it gets to know of changes: "watching", or "polling: " and why; "": it does not
}

// LeftOut are sessions that the tree's layout has no files for, for one reason.
type LeftOut struct {
	Reason   string   `json:"reason"`
	Sessions int      `json:"sessions"`
	Sample   []string `json:"sample"` // ids of the first ones
}

// maxSample is how many ids a LeftOut names.
const maxSample = 5

// leftOut counts the sessions without files, by the reasons. The caller holds mu.
func (t *Tree) leftOut() (list []LeftOut) {
	ids := make(map[string][]string)
	for sub, u := range t.units {
		if u.want == "" && u.apart != "" {
			ids[u.apart] = append(ids[u.apart], sub.ID)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(ids)) {
		all := ids[reason]
		slices.Sort(all)
		list = append(list, LeftOut{reason, len(all), all[:min(len(all), maxSample)]})
	}
	return list
}

// Status returns how the tree is.
func (t *Tree) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{Name: t.c.Name, Shown: t.cursor.Offset, Files: len(t.files), Units: len(t.ofUnit), Met: t.met, Noticed: len(t.noticed), Asking: t.asking, Watching: t.watched, LeftOut: t.leftOut()}
	for _, p := range slices.Sorted(maps.Keys(t.skipped)) {
		s.Skipped = append(s.Skipped, layouts.Problem{File: p, Reason: t.skipped[p]})
	}
	for _, e := range t.stuck {
		s.Stuck = append(s.Stuck, e)
	}
	return s
}

// Verify compares every file with what the log says, and returns what differs: nothing of a
// tree in which nobody has written since it was shown.
func (t *Tree) Verify(ctx context.Context) ([]layouts.Problem, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(ctx); err != nil {
		return nil, err
	}
	if t.isAway() {
		return nil, t.asking
	}
	var list []layouts.Problem
	problem := func(p, reason string) { list = append(list, layouts.Problem{File: p, Reason: reason}) }
	known := make(map[string]bool)
	for sub, u := range t.units {
		files, err := t.render(ctx, sub, t.cursor.Offset)
		if err != nil {
			problem(u.path, err.Error())
			continue
		}
		for _, w := range files {
			known[w.Path] = true
			sum, err := t.sumOf(ctx, w.Path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				problem(w.Path, "it is not there")
			case err != nil:
				problem(w.Path, err.Error())
			case sum != w.sum:
				problem(w.Path, "it is not what the log has")
			}
		}
	}
	t.walk(ctx, "", func(p string, e layouts.FileInfo) {
		if !known[t.alias(ctx, p)] && e.Size >= 0 {
			problem(p, "the log does not know it")
		}
	})
	return list, nil
}

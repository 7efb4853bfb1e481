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

// Status is the state of a tree.
type Status struct {
	Name     string
	Shown    events.Offset // offset of the log that the files show, except for stuck ones
	Files    int
	Entries  int  // number of sessions and documents with files
	Met      bool // every file was examined since the manifest was created: further changes are new
	Noticed  int  // number of paths to be examined
	Examined bool // every file was examined since the start: Skipped is complete
	Untried  int  // number of entries that wait for the first attempt since the start to write them again
	Skipped  []layouts.Problem
	LeftOut  []LeftOut
	Stuck    []*Error
	Asking   *BulkError // nil: no question
	Watching string     // "watching", or "polling: " and the reason; "": the tree does not follow the files
}

// LeftOut counts the sessions that the tree's layout has no files for, by reason.
type LeftOut struct {
	Reason   string   `json:"reason"`
	Sessions int      `json:"sessions"`
	Sample   []string `json:"sample"` // first ids
}

// maxSample is the maximum number of ids in a LeftOut.
const maxSample = 5

// leftOut counts the sessions without files by reason. The caller holds mu.
func (t *Tree) leftOut() (list []LeftOut) {
	ids := make(map[string][]string)
	for sub, u := range t.entries {
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

// Status returns the state of the tree.
func (t *Tree) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{Name: t.c.Name, Shown: t.cursor.Offset, Files: len(t.files), Entries: len(t.ofEntry), Met: t.met, Noticed: len(t.noticed), Asking: t.asking, Watching: t.watched, LeftOut: t.leftOut(), Examined: t.looked}
	for sub := range t.redo {
		if t.stuck[sub] == nil {
			s.Untried++
		}
	}
	for _, p := range slices.Sorted(maps.Keys(t.skipped)) {
		s.Skipped = append(s.Skipped, layouts.Problem{File: p, Reason: t.skipped[p]})
	}
	for _, e := range t.stuck {
		s.Stuck = append(s.Stuck, e)
	}
	return s
}

// Shows reports whether a file was written and need not be written again: an earlier problem with it is over.
func (t *Tree) Shows(p string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.files[p]
	if f == nil || t.redo[f.entry] || t.stuck[f.entry] != nil {
		return false
	}
	_, waits := t.dirty[f.entry]
	return !waits
}

// Verify compares every file with the log, and returns the differences. If no user has written to the tree since it was
// shown, there are none.
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
	for sub, u := range t.entries {
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
				problem(w.Path, "it is missing")
			case err != nil:
				problem(w.Path, err.Error())
			case sum != w.sum:
				problem(w.Path, "it differs from the log")
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

package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallylog/tally/internal/disk/backup"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/internal/storedir"
)

// beyond adds to a plan the places that the owner of the store knows, and that the erasure does not reach: backups, and
// texts beside the files of trees.
func (f folding) beyond(ctx context.Context, p *erasure.Plan) {
	lines := append(backupsOf(f.dir), f.trees.Unreached(ctx, p.Subjects)...)
	for i, line := range lines {
		if len(p.Unreached) >= erasure.MaxLines-1 {
			p.Unreached = append(p.Unreached, fmt.Sprintf("and %d more", len(lines)-i))
			return
		}
		p.Unreached = append(p.Unreached, line[:min(len(line), erasure.MaxText)])
	}
}

// backupsOf returns a line for each folder with backups of a store, as far as the store knows.
func backupsOf(dir string) (lines []string) {
	folders, err := storedir.Backups(dir)
	if err != nil {
		return []string{fmt.Sprintf("backups: the list of their folders cannot be read: %v", err)}
	}
	for _, folder := range folders {
		list, err := backup.List(folder)
		if _, gone := errors.AsType[*backup.NotFolderError](err); gone {
			continue
		}
		if err != nil {
			lines = append(lines, fmt.Sprintf("backups in %s, which cannot be read: %v", folder, err))
			continue
		}
		var first, last time.Time
		for _, b := range list {
			if first.IsZero() || b.Time.Before(first) && !b.Time.IsZero() {
				first = b.Time
			}
			if b.Time.After(last) {
				last = b.Time
			}
		}
		if len(list) > 0 {
			lines = append(lines, fmt.Sprintf("backups in %s: %d, from %s to %s: make a new one, then tally backup --keep 1 %s", folder, len(list), day(first), day(last), folder))
		}
	}
	return lines
}

func day(at time.Time) string { return at.UTC().Format(time.DateOnly) }

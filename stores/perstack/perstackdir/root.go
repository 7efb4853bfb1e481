package perstackdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// rootFiles keeps the files that belong to no job, and takes away those that are gone.
func (im importer) rootFiles(ctx context.Context) error {
	seen := make(map[string]bool)
	if err := im.rootFolder(ctx, ".", seen); err != nil {
		return err
	}
	return im.DropRootFiles(ctx, seen, nil)
}

// rootFolder walks over a folder that is no job's.
func (im importer) rootFolder(ctx context.Context, dir string, seen map[string]bool) error {
	entries, err := im.Tree.Entries(dir)
	if errors.Is(err, fs.ErrPermission) && dir != "." {
		im.Problem(dir, 0, fileReason(err)+": nothing below it is imported")
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		full := path.Join(dir, e.Name)
		switch {
		case e.Dir && dir == jobsName:
		case e.Dir:
			err = im.rootFolder(ctx, full, seen)
		case sessiondir.IsOdd(e):
			im.Skipped(full)
		case isPrivate(full):
			im.Problem(full, 0, "it may hold secrets, and is in no job's folder: not imported")
		default:
			seen[full] = true
			_, err = im.KeepRootFile(ctx, full, documentOf)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", full, err)
		}
	}
	return nil
}

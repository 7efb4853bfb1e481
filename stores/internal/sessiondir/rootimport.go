package sessiondir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/tallylog/tally/internal/layouts"
)

// rootFiles keeps the files that belong to no session, and deletes those that are gone.
func (im importer[S, F, V]) rootFiles(ctx context.Context) error {
	dirs := []string{"."}
	if im.shape.Flat {
		dirs = append(dirs, im.shape.Sessions)
	}
	seen := make(map[string]bool)
	for _, dir := range dirs {
		if err := im.rootFolder(ctx, dir, seen); err != nil {
			return err
		}
	}
	return im.DropRootFiles(ctx, seen, im.shape.isRootFile)
}

// rootFolder walks a folder that is not a session's.
func (im importer[S, F, V]) rootFolder(ctx context.Context, dir string, seen map[string]bool) error {
	entries, err := im.Tree.Entries(dir)
	switch {
	case err == nil:
	case dir == ".":
		return err
	case errors.Is(err, fs.ErrPermission):
		im.Problem(dir, 0, Reason(err)+": nothing below it is imported")
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil // the storage has no such folder, or it was removed
	default:
		return err
	}
	for _, e := range entries {
		full := path.Join(dir, e.Name)
		switch {
		case e.Dir && im.shape.Flat:
			if dir == "." && full != im.shape.Sessions {
				im.Report.Notes = append(im.Report.Notes, layouts.Problem{File: full, Reason: "a folder that is not part of the layout: not imported"})
			}
		case e.Dir && dir == im.shape.Sessions:
		case e.Dir:
			err = im.rootFolder(ctx, full, seen)
		case IsOdd(e):
			im.Skipped(full)
		default:
			err = im.rootFile(ctx, full, seen)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rootFile keeps one file, unless the store leaves it out.
func (im importer[S, F, V]) rootFile(ctx context.Context, full string, seen map[string]bool) error {
	taken, err := im.store.Takes(ctx, im.Intake, full)
	if err == nil && !taken {
		seen[full] = true
		err = im.keepRootFile(ctx, full)
	}
	if err != nil {
		err = cmp.Or(ctx.Err(), fmt.Errorf("%s: %w", full, err))
	}
	return err
}

func (im importer[S, F, V]) keepRootFile(ctx context.Context, full string) error {
	f, err := im.KeepRootFile(ctx, full, im.store.Document)
	if err != nil || f == nil {
		return err
	}
	return im.Spare(ctx, full, im.store.Kept(ctx, im.Intake, f))
}

// Reason returns the text of a file's error without its path.
func Reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

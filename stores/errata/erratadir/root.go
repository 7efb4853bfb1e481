package erratadir

import (
	"context"
	"fmt"
	"path"

	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// rootFiles keeps the files that belong to no session, and takes away those that
// are gone.
func (im importer) rootFiles(ctx context.Context) error {
	seen := make(map[string]bool)
	if err := im.rootFolder(ctx, ".", seen); err != nil {
		return err
	}
	return im.DropRootFiles(ctx, seen, nil)
}

// rootFolder walks over a folder that is no session's.
func (im importer) rootFolder(ctx context.Context, dir string, seen map[string]bool) error {
	entries, err := im.Tree.Entries(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		full := path.Join(dir, e.Name)
		switch {
		case e.Dir && dir == sessions, im.isBeside(full):
		case e.Dir:
			err = im.rootFolder(ctx, full, seen)
		case sessiondir.IsOdd(e):
			im.Skipped(full)
		default:
			seen[full] = true
			err = im.rootFile(ctx, full)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rootFile keeps one file whole; the recipes in it go in besides.
func (im importer) rootFile(ctx context.Context, full string) error {
	if left, err := im.isLeft(ctx, full); left || err != nil {
		return err
	}
	f, err := im.KeepRootFile(ctx, full, documentOf)
	if err != nil || f == nil || !isRecipes(full) {
		return err
	}
	return im.Spare(ctx, full, im.recipes(ctx, f, im.Root))
}

// recipes stores the recipes of a file by their hashes, as those of a root.
func (im importer) recipes(ctx context.Context, f *sessiondir.File, root string) error {
	limit := sessiondir.WholeLimit(im.Target)
	if f.Size > limit {
		im.Problem(f.Full, 0, fmt.Sprintf("longer than %d bytes: the recipes in it were not read", limit))
		return nil
	}
	data, err := im.Tree.Read(f, f.Size+1)
	if err != nil {
		return err
	}
	list, err := readRecipes(im.Target.Namespace(), data)
	if err != nil {
		im.Problem(f.Full, sessiondir.LineOf(data, err), sessiondir.ReasonOf(err)+": kept as it is, no recipes are taken from it")
		return nil
	}
	for _, r := range list {
		if err := r.put(ctx, im.Intake, root); err != nil {
			return err
		}
	}
	return nil
}

package erratadir

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Takes implements sessiondir.Store. It takes a file that is a session of its own and, in the import of a part, a
// file of an existing session.
func (store) Takes(ctx context.Context, in *sessiondir.Intake, full string) (bool, error) {
	if isBeside(in, full) {
		return true, nil
	}
	return isLeft(ctx, in, full)
}

// Kept implements sessiondir.Store. It also imports the recipes in the file.
func (store) Kept(ctx context.Context, in *sessiondir.Intake, f *sessiondir.File) error {
	if !isRecipes(f.Full) {
		return nil
	}
	return putRecipes(ctx, in, f, in.Root)
}

// putRecipes stores the recipes of a file by their hashes, as those of a root.
func putRecipes(ctx context.Context, in *sessiondir.Intake, f *sessiondir.File, root string) error {
	limit := sessiondir.WholeLimit(in.Target)
	if f.Size > limit {
		in.Problem(f.Full, 0, fmt.Sprintf("longer than %d bytes: the recipes in it were not read", limit))
		return nil
	}
	data, err := in.Tree.Read(f, f.Size+1)
	if err != nil {
		return err
	}
	list, err := readRecipes(in.Target.Namespace(), data)
	if err != nil {
		in.Problem(f.Full, sessiondir.LineOf(data, err), sessiondir.ReasonOf(err)+": kept as it is, no recipes are read from it")
		return nil
	}
	for _, r := range list {
		if err := r.put(ctx, in, root); err != nil {
			return err
		}
	}
	return nil
}

// isRecipes reports whether a file of the root has recipes.
func isRecipes(full string) bool { return full == recipesName || full == configsName }

// isLeft reports whether a file of a part belongs to an existing session but cannot be imported into it. It is not
// kept beside the session, because then two files would have that name. The file of the recipes that were not
// imported is not kept either.
func isLeft(ctx context.Context, in *sessiondir.Intake, full string) (bool, error) {
	root := layouts.Root{Name: in.Root, Marker: in.Marker}
	if !in.Options.Part {
		return false, nil
	}
	if full == recipesName && hasLiveRecipes(root) {
		return true, in.Spare(ctx, full, takeRecipes(ctx, in, full))
	}
	entry, ok, err := Layout{}.EntryAt(ctx, in.Target, root, full)
	if err != nil || !ok || !entry.IsSession() {
		return false, err
	}
	if _, err := (Layout{}).Location(ctx, in.Target, root, entry); err != nil {
		return false, nil //nolint:nilerr // it has no file
	}
	in.Problem(full, 0, fmt.Sprintf("is not a file that %s can have: left as it was", entry.ID))
	return true, nil
}

// takeRecipes imports the recipes in recipes.json that are missing from the store.
func takeRecipes(ctx context.Context, in *sessiondir.Intake, full string) error {
	f, err := in.Tree.File(full)
	if err != nil {
		return err
	}
	if err := putRecipes(ctx, in, f, ""); err != nil {
		return err
	}
	data, err := in.Tree.Read(f, sessiondir.WholeLimit(in.Target))
	if err != nil {
		return err
	}
	in.Report.Files.Add(layouts.Exact)
	in.Read(int64(len(data)))
	have, err := liveRecipes(ctx, in.Target)
	if err == nil && !bytes.Equal(have, data) {
		in.Problem(full, 0, "differs from the recipes in the store: new ones in the file were imported, none were removed")
	}
	return err
}

// unkept drops the document of a file that could not be parsed before, and now can.
func unkept(ctx context.Context, in *sessiondir.Intake, full string) error {
	if !in.Options.Part || full == "" {
		return nil // DropRootFiles removes it
	}
	doc := documentOf(in.Target.Namespace(), in.Root, full)
	have, err := sessiondir.Load(ctx, in.Target, doc)
	if _, linked := have.Session(); err != nil || !have.Exists || linked {
		return err
	}
	return in.Drop(ctx, doc)
}

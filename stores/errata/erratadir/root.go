package erratadir

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Takes implements sessiondir.Store: a file that is a session of its own and, in an import of a part,
// a file that a session has already.
func (store) Takes(ctx context.Context, in *sessiondir.Intake, full string) (bool, error) {
	if isBeside(in, full) {
		return true, nil
	}
	return isLeft(ctx, in, full)
}

// Kept implements sessiondir.Store: the recipes in a file go in besides.
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
		in.Problem(f.Full, sessiondir.LineOf(data, err), sessiondir.ReasonOf(err)+": kept as it is, no recipes are taken from it")
		return nil
	}
	for _, r := range list {
		if err := r.put(ctx, in, root); err != nil {
			return err
		}
	}
	return nil
}

// isRecipes reports whether a file of the root holds recipes.
func isRecipes(full string) bool { return full == recipesName || full == configsName }

// isLeft reports whether a file of a part is that of a session, which could not be made of it: it
// is not kept beside it, as then there were two of that name. Recipes that no import brought are
// no file that can be kept.
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
	in.Problem(full, 0, fmt.Sprintf("is not one that %s can have: left as it was", entry.ID))
	return true, nil
}

// takeRecipes takes in what recipes.json has beyond the recipes that no import brought.
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
		in.Problem(full, 0, "is not as the recipes in the store are written: what is new in it was taken in, nothing taken away")
	}
	return err
}

// unkept drops the document of a file that could not be read as what it is called, and can be now.
func unkept(ctx context.Context, in *sessiondir.Intake, full string) error {
	if !in.Options.Part || full == "" {
		return nil // it goes with those that are gone
	}
	doc := documentOf(in.Target.Namespace(), in.Root, full)
	have, err := sessiondir.Load(ctx, in.Target, doc)
	if _, linked := have.Session(); err != nil || !have.Exists || linked {
		return err
	}
	return in.Drop(ctx, doc)
}

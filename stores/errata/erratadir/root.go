package erratadir

import (
	"context"
	"fmt"
	"io"
	"path"

	"github.com/tallylog/tally/stores/internal/foreign"
)

// rootFiles keeps the files that belong to no session, and takes away those that
// are gone.
func (im *importer) rootFiles(ctx context.Context) error {
	seen := make(map[string]bool)
	if err := im.rootFolder(ctx, ".", seen); err != nil {
		return err
	}
	for have, err := range rootFiles(ctx, im.Target, im.Root) {
		if err != nil {
			return err
		}
		if seen[pathIn(have, im.Root)] || have.Meta.Attributes[foreign.AttrMarker] != im.Marker {
			continue
		}
		n, err := stamp.DeleteDocument(ctx, im.Target, have.Doc, false)
		if err != nil {
			return err
		}
		im.Added(n)
	}
	return ctx.Err()
}

// rootFolder walks over a folder that is no session's.
func (im *importer) rootFolder(ctx context.Context, dir string, seen map[string]bool) error {
	entries, err := im.Tree.Entries(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		full := path.Join(dir, e.Name())
		switch {
		case e.IsDir() && dir == sessions, im.isUnit(full):
		case e.IsDir():
			err = im.rootFolder(ctx, full, seen)
		case e.Type().IsRegular():
			seen[full] = true
			err = im.rootFile(ctx, full)
		default:
			im.Skipped(full)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isUnit reports whether a file of the root is a session of its own.
func (im *importer) isUnit(full string) bool {
	for _, name := range beside {
		if name == full {
			return im.isBeside(name)
		}
	}
	return false
}

// rootFile keeps one file whole; the recipes in it go in besides.
func (im *importer) rootFile(ctx context.Context, full string) error {
	err := im.keepRootFile(ctx, full)
	if err == nil || ctx.Err() != nil || !foreign.IsOwnFault(err) {
		return err
	}
	im.Problem(full, 0, err.Error())
	return nil
}

func (im *importer) keepRootFile(ctx context.Context, full string) error {
	s, err := newSource(im.Tree, full, full)
	if err != nil {
		return err
	}
	if err := scanWhole(im.Tree, s); err != nil {
		return err
	}
	doc := documentOf(im.Target.Namespace(), im.Root, full)
	if err := doc.Validate(); err != nil {
		return err
	}
	have, err := foreign.Load(ctx, im.Target, doc)
	if err != nil {
		return err
	}
	if have.Exists && have.Sum != s.sum && have.Meta.Attributes[foreign.AttrMarker] != im.Marker && !im.Adopted && !im.Options.Merge {
		im.Problem(full, 0, "another folder has another file of this name, which stays: "+foreign.WayOut)
		return nil
	}
	n, err := stamp.PutDocument(ctx, im.Target, foreign.WholeFile{Doc: doc, Meta: docMeta(im.Root, im.Marker, s), Size: s.size, Sum: s.sum,
		Content: func() (io.ReadCloser, error) { return im.Tree.Open(full) }}, false)
	if im.Added(n); err != nil {
		return err
	}
	im.Report.Files.Whole++
	im.Read(s.size)
	if full == recipesName || full == configsName {
		return im.recipes(ctx, s)
	}
	return nil
}

// recipes stores the recipes of a file by their hashes.
func (im *importer) recipes(ctx context.Context, s *source) error {
	if s.size > int64(foreign.WholeLimit(im.Target)) {
		im.Problem(s.full, 0, fmt.Sprintf("longer than %d bytes: the recipes in it were not read", foreign.WholeLimit(im.Target)))
		return nil
	}
	data, err := read(im.Tree, s)
	if err != nil {
		return err
	}
	list, err := readRecipes(im.Target.Namespace(), data)
	if err != nil {
		im.Problem(s.full, foreign.LineOf(data, err), foreign.ReasonOf(err)+": kept as it is, no recipes are taken from it")
		return nil
	}
	for _, r := range list {
		n, err := r.put(ctx, im.Target, im.Root)
		if im.Added(n); err != nil {
			return err
		}
	}
	return nil
}

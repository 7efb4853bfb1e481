package sessiondir

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
)

// DocumentOf returns the document of a root's file that is kept whole. A file with a long path has a hash as its
// name, below dir.
func DocumentOf(ns, root, path, dir string) events.Subject {
	id := root + "/" + path
	if len(id) > events.MaxIDLen {
		id = root[:min(len(root), 255)] + "/" + dir + "=~" + SumOf([]byte(path))
	}
	return events.Document(ns, events.KindFile, id)
}

// rootFiles yields the documents of a root's files that belong to no session. isOwn excludes paths that cannot be
// such files; nil excludes none. The links of a document decide for the others.
func rootFiles(ctx context.Context, src layouts.Source, root string, isOwn func(path string) bool) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		for info, err := range src.Subjects(ctx, events.KindFile) {
			if err != nil {
				yield(Stored{}, err)
				return
			}
			path, below := strings.CutPrefix(info.Subject.ID, root+"/")
			if !below || isOwn != nil && !isOwn(path) {
				continue
			}
			have, err := Load(ctx, src, info.Subject)
			if err == nil && (!have.Exists || have.ofSession()) {
				continue
			}
			if !yield(have, err) {
				return
			}
		}
	}
}

// ExportRoot yields the files that rootFiles finds.
func ExportRoot(ctx context.Context, src layouts.Source, root string, isOwn func(path string) bool) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		for have, err := range rootFiles(ctx, src, root, isOwn) {
			if !yield(have.file(ctx, src, root), err) {
				return
			}
		}
	}
}

func (st Stored) file(ctx context.Context, src layouts.Source, root string) layouts.File {
	return layouts.File{Path: st.pathIn(root), Mode: layouts.FileMode(st.mode()), Way: layouts.Whole,
		Write: func(w io.Writer) error { return writeDocument(ctx, src, st.Doc, 0, w) }}
}

// RootFile returns the file of a document that belongs to a root and to no session. If the document is missing or is
// not such a file, the error is projector.ErrNotFound.
func RootFile(ctx context.Context, src layouts.Source, root string, doc events.Subject) (layouts.File, error) {
	have, err := Load(ctx, src, doc)
	if err == nil && (!have.Exists || have.ofSession() || doc.Kind != events.KindFile || !strings.HasPrefix(doc.ID, root+"/")) {
		err = fmt.Errorf("%s is not a file of %s: %w", doc, root, projector.ErrNotFound)
	}
	return have.file(ctx, src, root), err
}

// RootFileLocation returns the location of the file that RootFile returns.
func RootFileLocation(ctx context.Context, src layouts.Source, root string, doc events.Subject) (layouts.Location, error) {
	f, err := RootFile(ctx, src, root, doc)
	return layouts.Location{Path: f.Path}, err
}

func (st Stored) ofSession() bool {
	return slices.ContainsFunc(st.Meta.Links, func(l events.Link) bool { return l.Rel == "session" })
}

// Session returns the session that the file belongs to, and false if it belongs to none.
func (st Stored) Session() (events.Subject, bool) {
	for _, l := range st.Meta.Links {
		if sub, err := events.ParseSubject(st.Doc.Namespace, l.To); l.Rel == "session" && err == nil {
			return sub, true
		}
	}
	return events.Subject{}, false
}

// mode returns the mode of the file, 0 for an ordinary one.
func (st Stored) mode() int64 {
	mode, err := strconv.ParseInt(st.Meta.Attributes[attrMode], 8, 32)
	if err != nil {
		return 0
	}
	return mode
}

// pathIn returns the path of the file below its root.
func (st Stored) pathIn(root string) string {
	if path := st.Meta.Attributes[attrPath]; path != "" {
		return PathOf(path)
	}
	return strings.TrimPrefix(st.Doc.ID, root+"/")
}

// KeepRootFile keeps a file whole that belongs to no session, and counts it. It reports an error of the file and
// returns nil for a file that is not kept.
func (in *Intake) KeepRootFile(ctx context.Context, full string, documentOf func(ns, root, path string) events.Subject) (*File, error) {
	f, err := in.keepRootFile(ctx, full, documentOf)
	return f, in.Spare(ctx, full, err)
}

func (in *Intake) keepRootFile(ctx context.Context, full string, documentOf func(ns, root, path string) events.Subject) (*File, error) {
	f, err := in.Tree.File(full)
	if err == nil {
		err = in.Tree.Hash(f)
	}
	if err != nil {
		return nil, err
	}
	doc := documentOf(in.Target.Namespace(), in.Root, full)
	if err := doc.Validate(); err != nil {
		return nil, err
	}
	have, err := Load(ctx, in.Target, doc)
	if err != nil {
		return nil, err
	}
	if have.Exists && have.Sum != f.Sum && have.Meta.Attributes[attrMarker] != in.Marker && !in.Adopted && !in.Options.Merge {
		in.Problem(full, 0, fmt.Sprintf("the store has another file of this name, from another folder called %q: %s", in.Root, in.wayOut()))
		return nil, nil
	}
	if err := in.Keep(ctx, doc, &events.Origin{Root: in.Root, Marker: in.Marker}, f); err != nil {
		return nil, err
	}
	in.Report.Files.Add(layouts.Whole)
	in.Read(f.Size)
	return f, nil
}

// DropRootFiles deletes the documents of files that were removed from this folder. If only a part of a folder is
// imported, DropRootFiles deletes nothing.
func (in *Intake) DropRootFiles(ctx context.Context, seen map[string]bool, isOwn func(path string) bool) error {
	if in.Options.Part {
		return ctx.Err()
	}
	for have, err := range rootFiles(ctx, in.Target, in.Root, isOwn) {
		if err != nil {
			return err
		}
		if seen[have.pathIn(in.Root)] || have.Meta.Attributes[attrMarker] != in.Marker {
			continue
		}
		if err := in.Drop(ctx, have.Doc); err != nil {
			return err
		}
	}
	return ctx.Err()
}

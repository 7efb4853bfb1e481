package erratadir

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"path"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// units are the sessions, with those that are a file beside them, and every other file.
var units = sessiondir.Units{
	Stamp:   stamp,
	Exports: Layout{}.Exports,
	Session: func(ctx context.Context, src formats.Source, root formats.Root, name string) (events.Subject, bool, bool) {
		sub, ok := Layout{}.Subject(ctx, src, root.Name, name)
		if !ok || !sub.IsSession() || beside[sub.ID] == name {
			return sub, sub.IsSession(), ok
		}
		dir := dirOf(sub.ID) // a session that is a file has no folder, nor has one a second one
		return sub, true, dir != "" && strings.HasPrefix(name, dir+"/")
	},
	Document: documentOf,
}

// ImportFrom implements formats.Live. What is in the storage is errata's data folder.
func (Layout) ImportFrom(ctx context.Context, target formats.Target, st formats.Storage, root formats.Root, o formats.ImportOptions) (formats.Report, error) {
	return sessiondir.ImportFrom(ctx, target, stamp, st, root, o, bringer(ctx))
}

// Unit implements formats.Live. The recipes that no import brought are one file.
func (Layout) Unit(ctx context.Context, src formats.Source, root formats.Root, sub events.Subject) (events.Subject, bool, error) {
	switch sub.Kind {
	case kindRecipe:
		return documentOf(src.Namespace(), root.Name, recipesName), hasLiveRecipes(root), nil
	case panel.KindRecipeText:
		return events.Session(sub.Namespace, sub.ID), true, nil
	}
	return units.Unit(ctx, src, root, sub)
}

// hasLiveRecipes reports whether recipes that no import brought are shown in a root.
func hasLiveRecipes(root formats.Root) bool { return root.Name == formats.LiveRoot }

// isLiveRecipes reports whether a unit is the file of those.
func isLiveRecipes(root formats.Root, unit events.Subject) bool {
	return hasLiveRecipes(root) && unit == documentOf(unit.Namespace, root.Name, recipesName)
}

// Place implements formats.Live: the folder of a session, or the file that it is.
func (l Layout) Place(ctx context.Context, src formats.Source, root formats.Root, unit events.Subject) (formats.Place, error) {
	if !unit.IsSession() {
		f, err := documentFile(ctx, src, root, unit)
		return formats.Place{Path: f.Path}, err
	}
	own, single := beside[unit.ID]
	o, err := units.Outline(ctx, src, root, unit)
	switch {
	case err != nil:
		return formats.Place{}, err
	case !single:
		return formats.Place{Path: dirOf(unit.ID), Folder: true}, nil
	}
	s, err := o.Session(ctx)
	if err != nil {
		return formats.Place{}, err
	}
	_, ok, err := newView(src, s).file(ctx, own)
	if err == nil && !ok {
		err = fmt.Errorf("%s has no file: %w", unit, projector.ErrNotFound)
	}
	return formats.Place{Path: own}, err
}

// documentFile is the file of a unit that is a document.
func documentFile(ctx context.Context, src formats.Source, root formats.Root, unit events.Subject) (formats.File, error) {
	f, err := sessiondir.RootFile(ctx, src, root.Name, unit)
	if err == nil || !isLiveRecipes(root, unit) {
		return f, err
	}
	data, other := liveRecipes(ctx, src)
	if other != nil || data == nil {
		return f, cmp.Or(other, err)
	}
	return privateFile(recipesName, formats.Exact, data), nil
}

// UnitFiles implements formats.Live.
func (l Layout) UnitFiles(ctx context.Context, src formats.Source, root formats.Root, unit events.Subject, at string) iter.Seq2[formats.File, error] {
	if unit.IsSession() {
		return sessiondir.SessionFiles(ctx, src, l, unit, at)
	}
	return func(yield func(formats.File, error) bool) { yield(documentFile(ctx, src, root, unit)) }
}

// UnitAt implements formats.Live.
func (Layout) UnitAt(ctx context.Context, src formats.Source, root formats.Root, name string) (events.Subject, bool, error) {
	sub, ok, err := units.UnitAt(ctx, src, root, name)
	if err != nil || !ok || beside[sub.ID] != name {
		return sub, ok, err
	}
	kept := documentOf(src.Namespace(), root.Name, name)
	have, err := sessiondir.Load(ctx, src, kept)
	if _, linked := have.Session(); have.Exists && !linked {
		sub = kept // it could not be read as what it is called
	}
	return sub, err == nil, err
}

// Removal implements formats.Live. A session is archived, an unfinished run is not gone on with;
// prompts, the oldest history and recipes stay.
func (Layout) Removal(ctx context.Context, src formats.Source, unit events.Subject) ([]log.Part, error) {
	switch {
	case !unit.IsSession() && isRecipes(path.Base(unit.ID)):
		return nil, nil
	case unit.IsSession() && unit.ID == headlessID:
		return cleared(ctx, src, unit)
	case unit.IsSession() && beside[unit.ID] != "":
		return nil, nil
	}
	return units.Removal(ctx, src, unit)
}

// cleared is the append by which nobody goes on with an unfinished run.
func cleared(ctx context.Context, src formats.Source, unit events.Subject) ([]log.Part, error) {
	o, err := src.Loader().Peek(ctx, unit)
	if err != nil {
		return nil, err
	}
	open := panel.Unfinished(o.Ledger())
	if open == nil {
		return nil, nil
	}
	e, err := events.New(EventSource, unit, &events.CheckpointCleared{Kind: events.CheckpointResume, ID: open.ID, Reason: "its file was removed"})
	return []log.Part{{Subject: unit, Expect: log.At(o.Offset()), Events: []events.Event{stamp.Named(e, o.Offset(), "checkpoint", "")}}}, err
}

// isRecipes reports whether a file of the root holds recipes.
func isRecipes(full string) bool { return full == recipesName || full == configsName }

// isLeft reports whether a file of a part is that of a session, which could not be made of it: it
// is not kept beside it, as then there were two of that name. Recipes that no import brought are
// no file that can be kept.
func (im importer) isLeft(ctx context.Context, full string) (bool, error) {
	root := formats.Root{Name: im.Root, Marker: im.Marker}
	if !im.Options.Part {
		return false, nil
	}
	if full == recipesName && hasLiveRecipes(root) {
		return true, im.Spare(ctx, full, im.liveRecipes(ctx, full))
	}
	unit, ok, err := Layout{}.UnitAt(ctx, im.Target, root, full)
	if err != nil || !ok || !unit.IsSession() {
		return false, err
	}
	if _, err := (Layout{}).Place(ctx, im.Target, root, unit); err != nil {
		return false, nil //nolint:nilerr // it has no file
	}
	im.Problem(full, 0, fmt.Sprintf("is not one that %s can have: left as it was", unit.ID))
	return true, nil
}

// liveRecipes takes in what recipes.json has beyond the recipes that no import brought.
func (im importer) liveRecipes(ctx context.Context, full string) error {
	f, err := im.Tree.File(full)
	if err != nil {
		return err
	}
	if err := im.recipes(ctx, f, ""); err != nil {
		return err
	}
	data, err := im.Tree.Read(f, sessiondir.WholeLimit(im.Target))
	if err != nil {
		return err
	}
	im.Report.Files.Add(formats.Exact)
	im.Read(int64(len(data)))
	have, err := liveRecipes(ctx, im.Target)
	if err == nil && !bytes.Equal(have, data) {
		im.Problem(full, 0, "is not as the recipes in the store are written: what is new in it was taken in, nothing taken away")
	}
	return err
}

// unkept drops the document of a file that could not be read as what it is called, and can be now.
func (im importer) unkept(ctx context.Context, full string) error {
	if !im.Options.Part || full == "" {
		return nil // it goes with those that are gone
	}
	doc := documentOf(im.Target.Namespace(), im.Root, full)
	have, err := sessiondir.Load(ctx, im.Target, doc)
	if _, linked := have.Session(); err != nil || !have.Exists || linked {
		return err
	}
	return im.Drop(ctx, doc)
}

package erratadir

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"path"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Entry implements layouts.Layout. The recipes that were not imported are one file.
func (l Layout) Entry(ctx context.Context, src layouts.Source, root layouts.Root, sub events.Subject) (events.Subject, bool, error) {
	switch sub.Kind {
	case kindRecipe:
		return documentOf(src.Namespace(), root.Name, recipesName), hasLiveRecipes(root), nil
	case panel.KindRecipeText:
		return events.Session(sub.Namespace, sub.ID), true, nil
	}
	return l.Layout.Entry(ctx, src, root, sub)
}

// hasLiveRecipes reports whether a root shows the recipes that were not imported.
func hasLiveRecipes(root layouts.Root) bool { return root.Name == layouts.LiveRoot }

// isLiveRecipes reports whether an entry is the file of those recipes.
func isLiveRecipes(root layouts.Root, entry events.Subject) bool {
	return hasLiveRecipes(root) && entry == documentOf(entry.Namespace, root.Name, recipesName)
}

// Location implements layouts.Layout. It returns the folder of a session, or its only file.
func (l Layout) Location(ctx context.Context, src layouts.Source, root layouts.Root, entry events.Subject) (layouts.Location, error) {
	if !entry.IsSession() {
		f, err := documentFile(ctx, src, root, entry)
		return layouts.Location{Path: f.Path}, err
	}
	own, single := beside[entry.ID]
	if !single {
		return l.Layout.Location(ctx, src, root, entry)
	}
	o, err := sessiondir.Outline(ctx, src, l.Store, root, entry)
	if err != nil {
		return layouts.Location{}, err
	}
	s, err := o.Session(ctx)
	if err != nil {
		return layouts.Location{}, err
	}
	_, ok, err := newView(src, s).File(ctx, own)
	if err == nil && !ok {
		err = fmt.Errorf("%s has no file: %w", entry, projector.ErrNotFound)
	}
	return layouts.Location{Path: own}, err
}

// documentFile returns the file of an entry that is a document.
func documentFile(ctx context.Context, src layouts.Source, root layouts.Root, entry events.Subject) (layouts.File, error) {
	f, err := sessiondir.RootFile(ctx, src, root.Name, entry)
	if err == nil || !isLiveRecipes(root, entry) {
		return f, err
	}
	data, other := liveRecipes(ctx, src)
	if other != nil || data == nil {
		return f, cmp.Or(other, err)
	}
	return privateFile(recipesName, layouts.Exact, data), nil
}

// EntryFiles implements layouts.Layout.
func (l Layout) EntryFiles(ctx context.Context, src layouts.Source, root layouts.Root, entry events.Subject, at string) iter.Seq2[layouts.File, error] {
	if entry.IsSession() {
		return sessiondir.SessionFiles(ctx, src, l, entry, at)
	}
	return func(yield func(layouts.File, error) bool) { yield(documentFile(ctx, src, root, entry)) }
}

// EntryAt implements layouts.Layout.
func (l Layout) EntryAt(ctx context.Context, src layouts.Source, root layouts.Root, name string) (events.Subject, bool, error) {
	sub, ok, err := l.Layout.EntryAt(ctx, src, root, name)
	if err != nil || !ok || beside[sub.ID] != name {
		return sub, ok, err
	}
	kept := documentOf(src.Namespace(), root.Name, name)
	have, err := sessiondir.Load(ctx, src, kept)
	if _, linked := have.Session(); have.Exists && !linked {
		sub = kept // its content did not match its name
	}
	return sub, err == nil, err
}

// Removal implements layouts.Layout. It archives a session, and clears an unfinished run. Prompts, the oldest history
// and recipes stay.
func (l Layout) Removal(ctx context.Context, src layouts.Source, entry events.Subject) ([]log.Part, error) {
	switch {
	case !entry.IsSession() && isRecipes(path.Base(entry.ID)):
		return nil, nil
	case entry.IsSession() && entry.ID == headlessID:
		return cleared(ctx, src, entry)
	case entry.IsSession() && beside[entry.ID] != "":
		return nil, nil
	}
	return l.Layout.Removal(ctx, src, entry)
}

// cleared returns the append that clears an unfinished run.
func cleared(ctx context.Context, src layouts.Source, entry events.Subject) ([]log.Part, error) {
	o, err := src.Loader().Peek(ctx, entry)
	if err != nil {
		return nil, err
	}
	open := panel.Unfinished(o.Ledger())
	if open == nil {
		return nil, nil
	}
	e, err := events.New(EventSource, entry, &events.CheckpointCleared{Kind: events.CheckpointResume, ID: open.ID, Reason: "its file was removed"})
	return []log.Part{{Subject: entry, Expect: log.At(o.Offset()), Events: []events.Event{stamp.Named(e, o.Offset(), "checkpoint", "")}}}, err
}

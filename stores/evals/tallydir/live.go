package tallydir

import (
	"context"
	"iter"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// units are the conversations, and the files beside them.
var units = sessiondir.Units{
	Stamp:   stamp,
	Exports: func(kind string) bool { return kind == events.KindConversation },
	Session: func(ctx context.Context, src formats.Source, _ formats.Root, path string) (events.Subject, bool, bool) {
		sub, ok := Layout{}.Subject(ctx, src, "", path)
		return sub, sub.IsSession(), ok
	},
	Document: documentOf,
}

// ImportFrom implements formats.Live. What is in the storage is the folder that holds
// conversations/.
func (Layout) ImportFrom(ctx context.Context, target formats.Target, st formats.Storage, root formats.Root, o formats.ImportOptions) (formats.Report, error) {
	return sessiondir.ImportFrom(ctx, target, stamp, st, root, o, bringer(ctx))
}

// Unit implements formats.Live.
func (Layout) Unit(ctx context.Context, src formats.Source, root formats.Root, sub events.Subject) (events.Subject, bool, error) {
	return units.Unit(ctx, src, root, sub)
}

// Place implements formats.Live: the folder of a conversation.
func (Layout) Place(ctx context.Context, src formats.Source, root formats.Root, unit events.Subject) (formats.Place, error) {
	if !unit.IsSession() {
		return sessiondir.PlaceOfRootFile(ctx, src, root.Name, unit)
	}
	o, err := units.Outline(ctx, src, root, unit)
	if err != nil {
		return formats.Place{}, err
	}
	return formats.Place{Path: pathOf(o), Folder: true}, nil
}

// pathOf returns the path of a session's folder.
func pathOf(o *projector.Outline) string {
	return conversations + "/" + folderOf(&projector.Session{Subject: o.Subject(), Ledger: o.Ledger()})
}

// UnitFiles implements formats.Live.
func (l Layout) UnitFiles(ctx context.Context, src formats.Source, root formats.Root, unit events.Subject, at string) iter.Seq2[formats.File, error] {
	if !unit.IsSession() {
		return sessiondir.SingleFile(ctx, src, root, unit)
	}
	return sessiondir.SessionFiles(ctx, src, l, unit, at)
}

// UnitAt implements formats.Live.
func (Layout) UnitAt(ctx context.Context, src formats.Source, root formats.Root, path string) (events.Subject, bool, error) {
	return units.UnitAt(ctx, src, root, path)
}

// Removal implements formats.Live. A conversation is archived.
func (Layout) Removal(ctx context.Context, src formats.Source, unit events.Subject) ([]log.Part, error) {
	return units.Removal(ctx, src, unit)
}

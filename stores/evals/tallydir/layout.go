package tallydir

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Layout is the layout of this package. It has no state.
//
// Import imports a folder with conversations/ or .tally/conversations/, or the folder of one conversation.
type Layout struct {
	sessiondir.Layout[store, *folder, *view]
}

var (
	_ layouts.Layout  = Layout{}
	_ layouts.Chooser = Layout{}
)

// store is the layout's store of conversations.
type store struct {
	sessiondir.Defaults
	limits *limits // shared by the conversations of an import
}

// Stamp implements sessiondir.Store.
func (store) Stamp() sessiondir.Stamp { return stamp }

// Shape implements sessiondir.Store.
func (store) Shape() sessiondir.Shape {
	return sessiondir.Shape{
		Layout: Format, Sessions: conversations, Inside: ".tally", Flat: true,
		IsRoot:     holdsConversations,
		HasSession: looksLikeConversation,
		Nothing:    "holds neither conversations/ nor a conversation",
	}
}

func holdsConversations(dir string) bool { return isDir(filepath.Join(dir, conversations)) }

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// looksLikeConversation reports whether a folder has one of a conversation's files.
func looksLikeConversation(dir string) bool {
	isIn := func(name string) bool { return sessiondir.IsFile(filepath.Join(dir, name)) }
	return slices.ContainsFunc([]string{metaName, turnsName, trajectoryName, tracesName}, isIn) || isDir(filepath.Join(dir, "runs"))
}

// Exports implements sessiondir.Store. The layout has files for conversations that were not imported.
func (store) Exports(kind string) bool { return kind == events.KindConversation }

// Document implements sessiondir.Store.
func (store) Document(ns, root, file string) events.Subject { return documentOf(ns, root, file) }

// View implements sessiondir.Store.
func (store) View(src layouts.Source, s *projector.Session) *view { return &view{src, s} }

// Begin implements sessiondir.Store. A dry run counts its events without keeping them.
func (store) Begin(in *sessiondir.Intake) (store, error) {
	if in.Dry != nil {
		in.Dry.Brief = true
	}
	return store{limits: newLimits()}, nil
}

// Parallel implements sessiondir.Store.
func (store) Parallel() int { return maxConversations }

// Birth implements sessiondir.Store. It reads meta.json.
func (store) Birth(in *sessiondir.Intake, u sessiondir.Entry) string {
	f := &folder{Folder: in.Folder(u)}
	file, err := in.Tree.File(path.Join(u.Dir, metaName))
	if err != nil || f.scanJSON(&source{File: file, role: role{part: partMeta}}) != nil {
		return ""
	}
	return f.birth
}

// List implements sessiondir.Store. It waits until the folder fits into memory.
func (st store) List(ctx context.Context, at sessiondir.Folder) (*folder, error) {
	f := &folder{Folder: at, limits: st.limits, release: func() {}}
	if err := f.list(); err != nil || len(f.files) == 0 {
		return f, err
	}
	if err := f.identify(); err != nil {
		return nil, err
	}
	var err error
	f.release, err = st.limits.hold(ctx, f.size)
	return f, err
}

// identify sets the id of the folder's session.
func (f *folder) identify() error {
	if layouts.IsShortened(f.name()) {
		f.ID = f.fullID()
	}
	if other := layouts.FileName(f.ID); other != f.name() && f.Tree.IsDir(path.Join(conversations, other)) {
		return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q and %q are folders of the same session", f.name(), other)}
	}
	return nil
}

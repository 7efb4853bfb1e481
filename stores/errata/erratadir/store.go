package erratadir

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// store is the layout's store of panels, prompts and histories.
type store struct{ sessiondir.Defaults }

// Stamp implements sessiondir.Store.
func (store) Stamp() sessiondir.Stamp { return stamp }

// Shape implements sessiondir.Store.
func (store) Shape() sessiondir.Shape {
	return sessiondir.Shape{
		Layout: Format, Sessions: sessions, Inside: "data", Usual: "data",
		IsRoot:     looksLikeRoot,
		HasSession: looksLikeSession,
		Nothing:    "holds neither sessions nor prompts",
	}
}

// looksLikeSession reports whether a folder has one of a session's own files.
func looksLikeSession(dir string) bool {
	return sessiondir.IsFile(filepath.Join(dir, metadataName)) || sessiondir.IsFile(filepath.Join(dir, contentName))
}

// looksLikeRoot reports whether a folder has sessions, prompts, or the history of the oldest form.
func looksLikeRoot(dir string) bool {
	history := filepath.Join(dir, historyName)
	return sessiondir.Shape{HasSession: looksLikeSession}.HoldsSession(filepath.Join(dir, sessions)) ||
		sessiondir.IsFile(filepath.Join(dir, promptsName)) || sessiondir.IsFile(history) && isHistory(os.Open(history))
}

// historyHead matches the beginning of the oldest history.
var historyHead = regexp.MustCompile(`^(\x{feff})?\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\[\s*(\]|\{\s*"(?i:role)"\s*:)`)

// isHistory reports whether an opened file begins like the oldest history.
func isHistory(r io.ReadCloser, err error) bool {
	if err != nil {
		return false
	}
	defer r.Close()
	head := make([]byte, 4<<10)
	n, _ := io.ReadFull(r, head)
	return historyHead.Match(head[:n])
}

// Exports implements sessiondir.Store. The layout has files for panels and prompts that were not imported.
func (store) Exports(kind string) bool { return kind == events.KindPanel || kind == events.KindPrompts }

// Document implements sessiondir.Store.
func (store) Document(ns, root, file string) events.Subject { return documentOf(ns, root, file) }

// View implements sessiondir.Store.
func (store) View(src layouts.Source, s *projector.Session) view { return newView(src, s) }

// Begin implements sessiondir.Store.
func (st store) Begin(*sessiondir.Intake) (store, error) { return st, nil }

// Entries implements sessiondir.Store. It lists the folders, and the files beside them that are sessions.
func (store) Entries(in *sessiondir.Intake, dir string) ([]sessiondir.Entry, error) {
	list, err := in.Entries(dir)
	for i := range list {
		list[i].File = beside[list[i].ID]
	}
	if err != nil || in.Single != "" {
		return list, err
	}
	for _, id := range []string{headlessID, historyID, promptsID} {
		if in.Wants(id) && isBeside(in, beside[id]) {
			list = append(list, sessiondir.Entry{ID: id, File: beside[id]})
		}
	}
	return list, nil
}

// isBeside reports whether a file of the root is a session of its own.
func isBeside(in *sessiondir.Intake, name string) bool {
	if partsBeside[name] == partOther {
		return false
	}
	_, err := in.Tree.File(name)
	return err == nil && (name != historyName || isHistory(in.Tree.Open(name)))
}

// Beside implements sessiondir.Store.
func (store) Beside(name string) (string, bool) {
	for id, own := range beside {
		if name == own {
			return id, true
		}
	}
	return "", false
}

// At implements sessiondir.Store. A session that is a file has no folder; any other session has exactly the folder
// that its id names.
func (store) At(_ context.Context, _ layouts.Source, name string, sub events.Subject) (events.Subject, bool) {
	if !sub.IsSession() || beside[sub.ID] == name {
		return sub, true
	}
	dir := dirOf(sub.ID)
	return sub, dir != "" && strings.HasPrefix(name, dir+"/")
}

// Birth implements sessiondir.Store. It reads the metadata.
func (store) Birth(in *sessiondir.Intake, at sessiondir.Entry) string {
	u := &folder{Folder: in.Folder(at)}
	f, err := in.Tree.File(path.Join(at.Dir, metadataName))
	if _, own := beside[at.ID]; own || err != nil || u.scanFile(f, partMetadata) != nil {
		return ""
	}
	return u.birth
}

// List implements sessiondir.Store.
func (store) List(ctx context.Context, at sessiondir.Folder) (*folder, error) {
	file, reserved := beside[at.ID]
	if err := unkept(ctx, at.In, file); err != nil {
		return nil, err
	}
	if reserved && at.Dir != "" {
		return nil, &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q is the session of %s", at.ID, file)}
	}
	u := &folder{Folder: at}
	if err := u.list(); err != nil || len(u.Files) == 0 {
		return u, err
	}
	return u, u.identify()
}

// identify checks that the folder's name matches the id.
func (u *folder) identify() error {
	if u.Dir == "" {
		return nil
	}
	if layouts.IsShortened(path.Base(u.Dir)) {
		if f := u.file(metadataName); f != nil && u.scanFile(f, partMetadata) == nil {
			if id := u.metadata.Text("id"); layouts.FileName(id) == path.Base(u.Dir) {
				u.ID = id
			}
		}
	}
	if dirOf(u.ID) != u.Dir {
		return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("the folder of session %q is called %q", u.ID, dirOf(u.ID))}
	}
	return nil
}

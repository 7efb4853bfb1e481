package tree

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/log"
)

// importEdits imports edits, entry by entry, each completely. The caller holds mu.
func (t *Tree) importEdits(ctx context.Context, list map[string]*edit) error {
	head, err := t.c.Head(ctx)
	if err != nil {
		return err
	}
	entries, err := t.grouped(ctx, list, head)
	if err != nil {
		return err
	}
	t.renamed(entries)
	for _, u := range entries {
		err := t.importEntry(ctx, u)
		if errors.Is(err, errMoved) {
			for _, e := range u.edits { // examined again, with the newer content
				t.note(e.path, t.c.Now())
				if n := t.noticed[e.path]; n != nil {
					n.found = e.found
				}
			}
			err = nil
		}
		if err != nil {
			return err
		}
		for _, e := range u.edits {
			delete(t.edits, e.path)
		}
	}
	return nil
}

// entryEdits holds the edits of one entry.
type entryEdits struct {
	entry events.Subject
	edits []*edit
	to    events.Subject // the entry that its files were renamed to
}

// grouped groups edits by entry. Entries with new files come first, so that moved content exists in its new place before
// it is removed from the old one.
func (t *Tree) grouped(ctx context.Context, list map[string]*edit, head events.Offset) ([]*entryEdits, error) {
	groups := make(map[events.Subject]*entryEdits)
	for _, p := range slices.Sorted(maps.Keys(list)) {
		e := list[p]
		if have := t.files[p]; have != nil {
			e.entry = have.entry
		} else if isCopy(p) {
			t.skipped[p] = "it has the name of a conflict's copy"
			delete(t.edits, p)
			continue
		} else {
			sub, ok, err := t.c.Layout.EntryAt(ctx, t.as(head), t.c.Root, p)
			if err != nil {
				return nil, err
			}
			if !ok {
				t.skipped[p] = "it is no part of the layout"
				delete(t.edits, p)
				continue
			}
			e.entry = sub
		}
		g := groups[e.entry]
		if g == nil {
			g = &entryEdits{entry: e.entry}
			groups[e.entry] = g
		}
		g.edits = append(g.edits, e)
	}
	entries := slices.Collect(maps.Values(groups))
	slices.SortFunc(entries, func(a, b *entryEdits) int {
		if x, y := a.isRemoval(), b.isRemoval(); x != y {
			if x {
				return 1
			}
			return -1
		}
		return strings.Compare(a.edits[0].path, b.edits[0].path)
	})
	return entries, nil
}

func (g *entryEdits) isRemoval() bool {
	return !slices.ContainsFunc(g.edits, func(e *edit) bool { return !e.gone })
}

// birth is a document created from a new file.
type birth struct {
	entry events.Subject
	sum   string
	at    time.Time
}

// renamed finds documents whose file was recently moved to another name. The caller holds mu.
func (t *Tree) renamed(entries []*entryEdits) {
	now := t.c.Now()
	t.born = slices.DeleteFunc(t.born, func(b birth) bool { return now.Sub(b.at) > 2*settleGone })
	for _, g := range entries {
		e := g.edits[0]
		if have := t.files[e.path]; have == nil && !e.gone && !g.entry.IsSession() {
			t.born = append(t.born, birth{g.entry, e.sum, now})
		}
	}
	for _, g := range entries {
		if !g.isRemoval() || len(g.edits) != 1 || g.entry.IsSession() || g.entry.Kind == KindConflict {
			continue
		}
		have := t.files[g.edits[0].path]
		i := slices.IndexFunc(t.born, func(b birth) bool {
			return have != nil && b.sum == have.sum && b.entry.Kind == g.entry.Kind && b.entry != g.entry
		})
		if i >= 0 {
			g.to = t.born[i].entry
			t.born = slices.Delete(t.born, i, i+1)
		}
	}
}

// importEntry imports the edits of an entry, except for files that the log has changed. The caller holds mu.
func (t *Tree) importEntry(ctx context.Context, g *entryEdits) error {
	head, err := t.c.Head(ctx)
	if err != nil {
		return err
	}
	if err := t.know(ctx, g.entry); err != nil {
		return err
	}
	shown, err := t.current(ctx, g.entry, head)
	if err != nil {
		return err
	}
	var changed, gone []*edit
	for _, e := range g.edits {
		have, is := t.files[e.path], shown[e.path]
		isOurs := have != nil && have.entry == g.entry
		isOld := false
		if e.found && have == nil {
			if isOld, err = t.isOld(ctx, g.entry, e.path, e.path, e.sum, is); err != nil {
				return err
			}
		}
		switch {
		case e.gone && (is.Path == "" || !isOurs || is.sum != have.sum):
			t.set(e.path, nil) // the log changed it meanwhile: it is written again, if it still exists
		case e.gone:
			gone = append(gone, e)
		case is.Path != "" && is.sum == e.sum && layouts.ModeOf(is.Mode) == layouts.ModeOf(e.mode):
			t.adopt(e, g.entry, head)
		case isOld:
			t.adopt(e, g.entry, head) // the log's content replaces it
		case is.Path != "" && isOurs && is.grew && e.size > have.size && t.isBegun(ctx, e, is):
			t.adopt(e, g.entry, have.at) // a part of the growth was written, and the log has the rest
		case g.entry.Kind == KindConflict && is.Path != "" && is.sum == e.sum:
			t.adopt(e, g.entry, head) // its mode has no meaning
		case is.Path == "" && has(shown, e.sum):
			t.adopt(e, g.entry, head) // it exists, under the name in the log
		case is.Path == "" && len(shown) > 0 && !g.entry.IsSession():
			if err := t.refuse(ctx, e, g.entry, "what it would be has another file"); err != nil {
				return err
			}
		case is.Path == "" && (have == nil || !isOurs), is.Path != "" && isOurs && is.sum == have.sum:
			changed = append(changed, e)
		default:
			if err := t.refuse(ctx, e, g.entry, "the log changed it too"); err != nil {
				return err
			}
		}
	}
	t.writeAgain(g.entry)
	if len(gone) > 0 && len(changed) == 0 && len(gone) == len(t.filesOf(g.entry)) {
		return t.removed(ctx, g, gone, head)
	}
	for _, e := range gone {
		t.set(e.path, nil) // the entry exists: its file is written again
	}
	if len(changed) > 0 {
		if err := t.bring(ctx, g.entry, changed, shown, head); err != nil {
			return err
		}
	}
	if head, err = t.c.Head(ctx); err != nil {
		return err
	}
	return t.rewriteFiles(ctx, g.entry, head)
}

// know adds an entry to the known entries. The caller holds mu.
func (t *Tree) know(ctx context.Context, sub events.Subject) error {
	u := t.entries[sub]
	if u == nil {
		u = &entry{first: events.MaxOffset} // until the log has it
	}
	if u.first != events.MaxOffset {
		return nil
	}
	first, err := t.c.Target.Loader().First(ctx, sub)
	if err != nil && !isGone(err) {
		return err
	}
	if err == nil {
		u.first = first
	}
	t.entries[sub] = u
	t.changed.entry(sub)
	return nil
}

// current renders an entry as of an offset, at its current path.
func (t *Tree) current(ctx context.Context, sub events.Subject, at events.Offset) (map[string]wantedFile, error) {
	if err := passing(ctx, t.locate(ctx, []events.Subject{sub}, at)[sub]); err != nil {
		return nil, err
	}
	list, err := t.render(ctx, sub, at)
	if err != nil {
		return nil, err
	}
	files := make(map[string]wantedFile, len(list))
	for _, w := range list {
		files[w.Path] = w
	}
	return files, nil
}

// rewriteFiles writes the current files of an entry. An entry without content is forgotten.
func (t *Tree) rewriteFiles(ctx context.Context, sub events.Subject, at events.Offset) error {
	if t.c.Way == In {
		delete(t.redo, sub)
		return t.save(ctx)
	}
	if err := t.writeOut(ctx, []events.Subject{sub}, nil, at); err != nil {
		return err
	}
	return t.save(ctx)
}

// isBegun reports whether an edited log file is the beginning of the wanted one.
func (t *Tree) isBegun(ctx context.Context, e *edit, is wantedFile) bool {
	begins, err := t.begins(ctx, is, e.path)
	return err == nil && begins
}

// has reports whether one of an entry's files has this content.
func has(files map[string]wantedFile, sum string) bool {
	for _, w := range files {
		if w.sum == sum {
			return true
		}
	}
	return false
}

// adopt registers a user's file as a file of the tree.
func (t *Tree) adopt(e *edit, sub events.Subject, at events.Offset) {
	t.set(e.path, &fileRecord{entry: sub, at: at, sum: e.sum, size: e.size, mode: e.mode, version: e.version})
}

// refuse keeps a user's text as a conflict. The file will get the log's content.
func (t *Tree) refuse(ctx context.Context, e *edit, sub events.Subject, reason string) error {
	k := keeping{path: e.path, entry: sub, sum: e.sum, reason: reason, read: t.reader(ctx, e)}
	if have := t.files[e.path]; have != nil {
		k.base = have.at
	}
	if err := t.keep(ctx, k); err != nil {
		return err
	}
	// The text is stored, so the file may be replaced unless it changes again.
	t.set(e.path, &fileRecord{entry: sub, at: k.base, sum: e.sum, size: e.size, mode: e.mode, version: e.version})
	return nil
}

func (t *Tree) reader(ctx context.Context, e *edit) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		if e.data != nil {
			return io.NopCloser(bytes.NewReader(e.data)), nil
		}
		return t.c.Storage.Read(ctx, e.path)
	}
}

// bring makes the layout import edits of files that the log did not change.
func (t *Tree) bring(ctx context.Context, sub events.Subject, changed []*edit, shown map[string]wantedFile, head events.Offset) error {
	if sub.Kind == KindConflict {
		return t.rewrite(ctx, sub, changed[0], head)
	}
	part := &partStorage{under: t.c.Storage, files: make(map[string]piece)}
	for p, w := range shown {
		part.files[p] = piece{mode: w.Mode, size: w.size, write: w.content}
	}
	for _, e := range changed {
		part.files[e.path] = piece{mode: e.mode, size: e.size, modTime: e.modTime, read: t.reader(ctx, e)}
	}
	reached("way back: before append")
	report, err := t.c.Layout.ImportFrom(ctx, t.as(head), part, t.c.Root, layouts.ImportOptions{Merge: true, Part: true})
	reached("way back: after append")
	if err != nil {
		return err
	}
	if head, err = t.c.Head(ctx); err != nil {
		return err
	}
	if err := t.know(ctx, sub); err != nil {
		return err
	}
	now, err := t.current(ctx, sub, head)
	if err != nil {
		return err
	}
	for _, e := range changed {
		if is := now[e.path]; is.Path != "" && is.sum == e.sum || is.Path == "" && has(now, e.sum) {
			t.adopt(e, sub, head)
			continue
		}
		if t.isShownElsewhere(ctx, e, head) {
			continue
		}
		if is := now[e.path]; e.data == nil && is.Path != "" && t.isAnother(ctx, e) {
			// The import covers the content at that time. The current content is examined as an edit of it.
			t.set(e.path, &fileRecord{entry: sub, at: head, sum: is.sum, size: is.size, mode: is.Mode})
			continue
		}
		if err := t.refuse(ctx, e, sub, reasonOf(report, e.path)); err != nil {
			return err
		}
	}
	return nil
}

// isAnother reports whether a file has changed since it was read.
func (t *Tree) isAnother(ctx context.Context, e *edit) bool {
	info, err := t.c.Storage.Stat(ctx, e.path)
	return err == nil && info.Version != e.version
}

// isShownElsewhere reports whether the text in a file belongs to another entry than its path implies, for example a node
// file that names another agent.
func (t *Tree) isShownElsewhere(ctx context.Context, e *edit, head events.Offset) bool {
	sub, ok, err := t.c.Layout.EntryAt(ctx, t.as(head), t.c.Root, e.path)
	if err != nil || !ok || sub == e.entry {
		return false
	}
	if t.know(ctx, sub) != nil {
		return false
	}
	now, err := t.current(ctx, sub, head)
	if err != nil || now[e.path].sum != e.sum {
		return false
	}
	t.adopt(e, sub, head)
	return true
}

// reasonOf returns why an import refused a file.
func reasonOf(r layouts.Report, p string) string {
	for _, problem := range slices.Concat(r.Problems, r.Notes) {
		if problem.File == p || problem.File == path.Dir(p) || strings.HasPrefix(p, problem.File+"/") {
			return problem.Reason
		}
	}
	return "what it says cannot be changed by a file"
}

// rewrite replaces the text of a conflict with the content of its file.
func (t *Tree) rewrite(ctx context.Context, doc events.Subject, e *edit, head events.Offset) error {
	d, err := t.as(head).Loader().Document(ctx, doc, 0)
	if err != nil {
		return err
	}
	r, err := t.reader(ctx, e)()
	if err != nil {
		return err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	ev := events.Event{ID: events.DerivedID("tree", t.c.Name, doc.ID, d.Head.String(), e.sum), Source: eventSource, Type: events.TypeDocumentWritten,
		Subject: doc, ContentType: d.Last().ContentType, Data: data}
	_, err = t.as(head).Append(ctx, doc, log.At(d.Head), ev.WithExtension(events.ExtDoc, d.Last().Meta.String()))
	return err
}

// removed removes an entry after all its files were removed.
func (t *Tree) removed(ctx context.Context, g *entryEdits, gone []*edit, head events.Offset) error {
	src := t.as(head)
	var parts []log.Part
	var err error
	if g.entry.Kind == KindConflict {
		err = t.close(ctx, g.entry)
		if isGone(err) {
			err = nil
		}
	} else {
		parts, err = t.c.Layout.Removal(ctx, src, g.entry)
	}
	if err != nil {
		return err
	}
	if g.to.ID != "" {
		parts = renamedTo(parts, g.to)
	}
	reached("way back: before append")
	switch {
	case len(parts) == 1:
		_, err = src.Append(ctx, parts[0].Subject, parts[0].Expect, parts[0].Events...)
	case len(parts) > 1:
		_, err = src.AppendAll(ctx, parts...)
	}
	reached("way back: after append")
	if err != nil {
		return err
	}
	for _, e := range gone {
		t.set(e.path, nil)
	}
	if head, err = t.c.Head(ctx); err != nil {
		return err
	}
	return t.rewriteFiles(ctx, g.entry, head)
}

// renamedTo adds the new name to the deletion of a document.
func renamedTo(parts []log.Part, to events.Subject) []log.Part {
	for _, p := range parts {
		for i, e := range p.Events {
			if e.Type != events.TypeDocumentDeleted {
				continue
			}
			renamed, err := events.New(e.Source, p.Subject, &events.DocumentDeleted{Reason: events.ReasonRenamed, To: events.RefOf(to, 0)})
			if err == nil {
				renamed.ID = e.ID
				p.Events[i] = renamed
			}
		}
	}
	return parts
}

// maxOldSession is the number of a session's last records that wasOfSession compares.
const maxOldSession = 64

// wasOfSession reports whether a file of a session had this content after one of its last records.
func (t *Tree) wasOfSession(ctx context.Context, sub events.Subject, p, sum string) (bool, error) {
	u := t.entries[sub]
	if u == nil || u.path == "" {
		return false, nil
	}
	of := []events.Subject{sub}
	if l, ok := t.c.Layout.(layouts.Sharer); ok {
		of = append(of, l.Others(sub, p)...)
	}
	var offsets []events.Offset
	for _, sub := range of {
		last, err := t.lastOffsets(ctx, sub)
		if err != nil {
			return false, err
		}
		offsets = append(offsets, last...)
	}
	slices.Sort(offsets)
	for _, at := range slices.Backward(offsets[max(0, len(offsets)-maxOldSession):]) {
		files, err := t.renderAt(ctx, sub, at, u.path)
		if err := passing(ctx, err); err != nil {
			return false, err
		}
		if err == nil && slices.ContainsFunc(files, func(w wantedFile) bool { return w.Path == p && w.sum == sum }) {
			return true, nil
		}
	}
	return false, nil
}

// lastOffsets returns the offsets of the last records of a subject.
func (t *Tree) lastOffsets(ctx context.Context, sub events.Subject) (offsets []events.Offset, err error) {
	for rec, err := range t.c.Target.Loader().Source.Read(ctx, events.Range{Subject: sub}) {
		if err := passing(ctx, err); err != nil {
			return nil, err
		}
		if err != nil {
			continue // an unreadable record left no known content
		}
		if offsets = append(offsets, rec.Offset); len(offsets) > 2*maxOldSession {
			offsets = slices.Delete(offsets, 0, maxOldSession)
		}
	}
	return offsets, nil
}

// isOld reports whether a file that is not in the manifest has content that the log once had at the path. Then no user
// wrote it. For a log file, the beginning of the log's content suffices. After an error this is not known yet.
func (t *Tree) isOld(ctx context.Context, sub events.Subject, where, p, sum string, is wantedFile) (bool, error) {
	if sub.ID == "" {
		return false, nil
	}
	if is.Path == "" {
		var err error
		if is, err = t.now(ctx, sub, p); err != nil {
			return false, err
		}
	}
	if is.Path != "" && is.sum == sum {
		return true, nil
	}
	if is.Path != "" && isLog(p) {
		old, err := t.begins(ctx, is, where)
		if err := passing(ctx, err); err != nil || old {
			return old, err
		}
	}
	if sub.IsSession() {
		return t.wasOfSession(ctx, sub, p, sum)
	}
	doc, err := t.c.Target.Loader().History(ctx, sub)
	if err != nil && !isGone(err) || doc == nil {
		return false, passing(ctx, err)
	}
	revisions := doc.Revisions[max(0, len(doc.Revisions)-maxOld):]
	for _, rev := range slices.Backward(revisions) {
		if rev.Deleted {
			continue
		}
		files, err := t.renderAt(ctx, sub, rev.Offset, p)
		if err := passing(ctx, err); err != nil {
			return false, err
		}
		if err == nil && slices.ContainsFunc(files, func(w wantedFile) bool { return w.sum == sum }) {
			return true, nil
		}
	}
	return false, nil
}

// now returns a file of an entry as of the end of the log, or the zero value if the log has none or cannot render it.
func (t *Tree) now(ctx context.Context, sub events.Subject, p string) (wantedFile, error) {
	if err := t.know(ctx, sub); err != nil {
		return wantedFile{}, passing(ctx, err)
	}
	head, err := t.c.Head(ctx)
	if err != nil {
		return wantedFile{}, err
	}
	files, err := t.current(ctx, sub, head)
	return files[p], passing(ctx, err)
}

// maxOld is the number of document revisions that are compared with a file that is not in the manifest.
const maxOld = 256

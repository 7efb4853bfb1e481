package taverndir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Entry implements layouts.Layout. An agent is its session, with its document and its log. Every other document, inbox
// and queue is an entry of its own. An item belongs to the files of its queue.
func (l Layout) Entry(ctx context.Context, src layouts.Source, root layouts.Root, sub events.Subject) (events.Subject, bool, error) {
	entry, ok, err := l.entryOf(ctx, src, root, sub)
	return entry, ok && l.hasKind(entry), err
}

func (l Layout) entryOf(ctx context.Context, src layouts.Source, root layouts.Root, sub events.Subject) (events.Subject, bool, error) {
	switch {
	case sub.Namespace != src.Namespace():
	case sub.IsSession():
		if queue, _, ok := projector.ItemOf(sub.ID); ok {
			sub.ID = projector.QueueSession(queue)
		}
		return sub, hasOwnFiles(sub.ID), nil
	case sub.Kind == events.KindAgent:
		return agentSession(sub), true, nil
	case isDocument(sub.Kind):
		return sub, true, nil
	case sub.Kind == events.KindFile && strings.HasPrefix(sub.ID, rootName+"/"):
		return l.entryOfFile(ctx, src, root, sub)
	}
	return events.Subject{}, false, nil
}

// entryOfFile returns the entry of a kept file: the agent whose log it is, or the file itself.
func (l Layout) entryOfFile(ctx context.Context, src layouts.Source, root layouts.Root, sub events.Subject) (events.Subject, bool, error) {
	have, err := sessiondir.Load(ctx, src, sub)
	if err != nil {
		return sub, false, err
	}
	if s, ok := have.Session(); ok {
		return s, true, nil
	}
	if name := strings.TrimPrefix(sub.ID, rootName+"/"); !have.Exists && path.Base(name) == sessionsName {
		return l.entryAt(ctx, src, name) // it may have been an agent's log
	}
	return sub, true, nil
}

func isDocument(kind string) bool {
	return slices.ContainsFunc(kinds, func(k struct{ kind, dir, suffix string }) bool { return k.kind == kind })
}

// hasOwnFiles reports whether a session's id is that of an agent, an inbox or a queue.
func hasOwnFiles(id string) bool {
	kind, rest, ok := strings.Cut(id, "/")
	return ok && rest != "" && (kind == events.KindAgent || kind == boxes[0].kind || kind == boxes[1].kind)
}

// agentSession returns the session of an agent's document.
func agentSession(doc events.Subject) events.Subject {
	return events.Session(doc.Namespace, agentPrefix+doc.ID)
}

// agentDoc returns the document of an agent's session.
func agentDoc(session events.Subject) events.Subject {
	return events.Document(session.Namespace, events.KindAgent, strings.TrimPrefix(session.ID, agentPrefix))
}

// Location implements layouts.Layout.
func (l Layout) Location(ctx context.Context, src layouts.Source, _ layouts.Root, entry events.Subject) (layouts.Location, error) {
	if has, err := l.has(ctx, src, entry); err != nil || !has {
		return layouts.Location{}, cmp.Or(err, noLocation(entry))
	}
	p, err := locationOf(ctx, src, entry, false)
	if err == nil && slices.ContainsFunc(strings.Split(p.Path, "/"), isHidden) {
		return layouts.Location{}, noLocation(entry) // a store's data must not become the settings of another program
	}
	return p, err
}

func noLocation(entry events.Subject) error {
	return fmt.Errorf("tavern: %s has no file: %w", entry, projector.ErrNotFound)
}

// locationOf is Location. With archived it also returns the locations of archived agents, for exports.
func locationOf(ctx context.Context, src layouts.Source, entry events.Subject, archived bool) (layouts.Location, error) {
	switch {
	case entry.Namespace != src.Namespace():
	case entry.IsSession():
		return locationOfSession(ctx, src, entry, archived)
	case entry.Kind == events.KindFile && strings.HasPrefix(entry.ID, rootName+"/"):
		return sessiondir.RootFileLocation(ctx, src, rootName, entry)
	case isDocument(entry.Kind):
		doc, err := src.Loader().Document(ctx, entry, 0)
		if err != nil {
			return layouts.Location{}, err
		}
		if name, ok := imported(doc); ok {
			return layouts.Location{Path: name}, nil
		}
		i := slices.IndexFunc(kinds, func(k struct{ kind, dir, suffix string }) bool { return k.kind == entry.Kind })
		suffix := kinds[i].suffix
		name := pathOf(entry.ID, suffix, suffix == jsonSuffix || isMarkdown(doc))
		return layouts.Location{Path: path.Join(kinds[i].dir, name), Apart: path.Join(kinds[i].dir, apart(pathOf(entry.ID, suffix, true)))}, nil
	}
	return layouts.Location{}, noLocation(entry)
}

// imported returns the path that a document had in the imported folder, which it keeps.
func imported(doc *projector.Document) (string, bool) {
	name := sessiondir.PathOf(attribute(doc, "path"))
	return name, name != "" && attribute(doc, "root") == rootName
}

func locationOfSession(ctx context.Context, src layouts.Source, entry events.Subject, archived bool) (layouts.Location, error) {
	if !hasOwnFiles(entry.ID) {
		return layouts.Location{}, noLocation(entry)
	}
	o, err := src.Loader().Outline(ctx, entry, 0)
	if err != nil {
		return layouts.Location{}, err
	}
	kind, id, _ := strings.Cut(entry.ID, "/")
	ledger := o.Ledger()
	if ledger.Kind != kind || !archived && sessiondir.IsArchived(ledger) {
		return layouts.Location{}, noLocation(entry)
	}
	if kind == events.KindAgent {
		return locationOfAgent(ctx, src, entry, ledger)
	}
	i := slices.IndexFunc(boxes, func(b struct{ kind, dir, sub, thread, head string }) bool { return b.kind == kind })
	if o.Len(boxes[i].thread) == 0 && headOf(&projector.Session{Ledger: ledger}, i).isEmpty() {
		return layouts.Location{}, noLocation(entry)
	}
	name := flat(id)
	return layouts.Location{Path: path.Join(boxes[i].dir, name), Apart: path.Join(boxes[i].dir, apartDir(name)), Folder: true}, nil
}

// locationOfAgent returns the folder that an agent was imported from, or one with the agent's name. An agent of a flat
// folder keeps its file.
func locationOfAgent(ctx context.Context, src layouts.Source, entry events.Subject, l *projector.Ledger) (layouts.Location, error) {
	doc, err := src.Loader().Document(ctx, agentDoc(entry), 0)
	gone := errors.Is(err, projector.ErrNotFound)
	if err != nil && !gone {
		return layouts.Location{}, err
	}
	id := layouts.FileName(strings.TrimPrefix(entry.ID, agentPrefix))
	name := id
	switch {
	case gone && (l.Text("purgedAt") != "" || len(l.Log) == 0):
		return layouts.Location{}, noLocation(entry)
	case gone:
	default:
		if full, ok := imported(doc); ok {
			dir := path.Dir(full)
			if dir == "." {
				return layouts.Location{Path: full}, nil // of a flat folder
			}
			return layouts.Location{Path: dir, Folder: true, Files: []string{agentName, sessionsName}}, nil
		}
		name = nodeDir(doc)
	}
	return layouts.Location{Path: path.Join(agentsDir, name), Apart: path.Join(agentsDir, name+"=~"+id), Folder: true, Files: []string{agentName, sessionsName}}, nil
}

// Others implements layouts.Sharer: an item's session changes the item's file.
func (Layout) Others(entry events.Subject, name string) []events.Subject {
	box, queue, below, ok := boxAt(name)
	if !ok || boxes[box].kind != events.KindQueue || numberOf(below) == 0 {
		return nil
	}
	item := idOf(strings.TrimSuffix(below[digits+1:], jsonSuffix), "")
	return []events.Subject{events.Session(entry.Namespace, projector.ItemSession(queue, item))}
}

// EntryFiles implements layouts.Layout.
func (Layout) EntryFiles(ctx context.Context, src layouts.Source, _ layouts.Root, entry events.Subject, at string) iter.Seq2[layouts.File, error] {
	return filesAt(ctx, src, entry, at, nil)
}

// filesAt yields the files of an entry at a path. s is the loaded session, or nil.
func filesAt(ctx context.Context, src layouts.Source, entry events.Subject, at string, s *projector.Session) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		files, err := entryFiles(ctx, src, entry, at, s)
		if err != nil {
			yield(layouts.File{Path: at}, err)
			return
		}
		for _, f := range files {
			if !yield(f, nil) {
				return
			}
		}
	}
}

func entryFiles(ctx context.Context, src layouts.Source, entry events.Subject, at string, s *projector.Session) ([]layouts.File, error) {
	if entry.Kind == events.KindFile && !entry.IsSession() {
		f, err := sessiondir.RootFile(ctx, src, rootName, entry)
		return []layouts.File{f}, err
	}
	if !entry.IsSession() {
		f, err := documentFile(ctx, src, entry, at)
		return []layouts.File{f}, err
	}
	if s == nil {
		var err error
		if s, err = src.Loader().Session(ctx, entry, 0); err != nil {
			return nil, err
		}
	}
	if box, _, ok := boxOf(s); ok {
		return boxFiles(ctx, src, s, box, at)
	}
	if s.Ledger.Kind != events.KindAgent || !strings.HasPrefix(entry.ID, agentPrefix) {
		return nil, nil
	}
	return agentFiles(ctx, src, s, at)
}

// EntryAt implements layouts.Layout. It returns false for files of other layers.
func (l Layout) EntryAt(ctx context.Context, src layouts.Source, _ layouts.Root, name string) (events.Subject, bool, error) {
	entry, ok, err := l.entryAt(ctx, src, name)
	if !ok || err != nil {
		return entry, ok, err
	}
	if _, isOfAgent := nodeOf(name); isOfAgent && entry.Kind == events.KindFile {
		have, err := sessiondir.Load(ctx, src, entry)
		if err != nil || !have.Exists {
			return entry, err == nil && l.isKind(events.KindAgent), err // it would be an agent's
		}
	}
	ok, err = l.has(ctx, src, entry)
	return entry, ok, err
}

func (l Layout) entryAt(ctx context.Context, src layouts.Source, name string) (events.Subject, bool, error) {
	kept := sessiondir.DocumentOf(src.Namespace(), rootName, name, "")
	if !sessiondir.IsPath(name) || slices.ContainsFunc(strings.Split(name, "/"), isSkipped) || kept.Validate() != nil {
		return events.Subject{}, false, nil
	}
	node, isOfAgent := nodeOf(name)
	if isOfAgent || isFlatNode(name) {
		if sub, ok, err := agentAt(ctx, src, name); ok || err != nil {
			return sub, ok, err
		}
	}
	have, err := sessiondir.Load(ctx, src, kept)
	if err != nil {
		return kept, false, err
	}
	if _, linked := have.Session(); have.Exists && !linked {
		return kept, true, nil
	}
	if isOfAgent && !l.Flat {
		return sessiondir.DocumentOf(src.Namespace(), rootName, node, ""), true, nil
	}
	if box, id, below, ok := boxAt(name); ok && !l.Flat && (numberOf(below) > 0 || below == boxes[box].head) {
		return events.Session(src.Namespace(), boxes[box].kind+"/"+id), true, nil
	}
	sub, ok, err := l.documentEntryAt(ctx, src, name)
	if err == nil && !ok {
		sub = kept
	}
	return sub, err == nil, err
}

// documentEntryAt returns the document at a path, or the one that a new file would be. It skips documents with another
// path.
func (l Layout) documentEntryAt(ctx context.Context, src layouts.Source, name string) (events.Subject, bool, error) {
	for _, flat := range []bool{false, true} {
		kind, id, ok := documentAt(name, flat)
		sub := events.Document(src.Namespace(), kind, id)
		if !ok || sub.Validate() != nil {
			continue
		}
		p, err := locationOf(ctx, src, sub, false)
		switch {
		case errors.Is(err, projector.ErrNotFound):
			if flat == l.Flat {
				return sub, true, nil
			}
		case err != nil:
			return sub, false, err
		case p.Path == name || p.Apart == name:
			return sub, true, nil
		}
	}
	return events.Subject{}, false, nil
}

// isFlatNode reports whether a file may be an agent's node file in a flat folder.
func isFlatNode(name string) bool {
	return !strings.Contains(name, "/") && strings.HasSuffix(name, mdSuffix)
}

// nodeOf returns the path of the node file in the agent's folder of a file.
func nodeOf(name string) (string, bool) {
	dir, base := path.Split(name)
	top, rest, _ := strings.Cut(strings.TrimSuffix(dir, "/"), "/")
	own := map[string]string{agentsDir: agentName, servitorsDir: servitorName}[top]
	if own == "" || rest == "" || strings.Contains(rest, "/") || base != own && base != sessionsName {
		return "", false
	}
	return dir + own, true
}

// agentAt returns the agent that has a file. If several agents have the name, it is the first one.
func agentAt(ctx context.Context, src layouts.Source, name string) (events.Subject, bool, error) {
	var found events.Subject
	var since events.Offset
	for info, err := range src.Subjects(ctx, events.KindAgent) {
		if err != nil {
			return found, false, err
		}
		entry := agentSession(info.Subject)
		p, err := locationOf(ctx, src, entry, false)
		switch {
		case errors.Is(err, projector.ErrNotFound):
			continue
		case err != nil:
			return found, false, err
		case p.Apart != "" && p.Apart == path.Dir(name), p.Apart == "" && hasAt(p, info.Subject.ID, name):
			return entry, true, nil
		case p.Path != path.Dir(name):
			continue
		}
		first, err := firstOf(ctx, src, entry)
		if err != nil {
			return found, false, err
		}
		if since == 0 || first < since {
			found, since = entry, first
		}
	}
	return found, since != 0, nil
}

// hasAt reports whether an imported agent has a file.
func hasAt(p layouts.Location, id, name string) bool {
	if p.Folder {
		return p.Path == path.Dir(name)
	}
	return p.Path == name || sessionsPath(p.Path, id) == name
}

// namesOf returns the paths of all entries, for an export also of archived ones. Unreadable entries have no path.
func namesOf(ctx context.Context, src layouts.Source) (map[events.Subject]string, error) {
	type located struct {
		sub      events.Subject
		location layouts.Location
		first    events.Offset // of its records: on a clash the lower one keeps its name
	}
	var list []located
	var names layouts.Names
	at := make(map[events.Subject]string)
	for sub, err := range allEntries(ctx, src) {
		if err != nil {
			return nil, err
		}
		one := located{sub: sub}
		if one.location, err = locationOf(ctx, src, sub, true); err == nil {
			one.first, err = firstOf(ctx, src, sub)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
		case one.location.Apart == "":
			at[sub] = names.Assign(one.location)
		default:
			list = append(list, one)
		}
	}
	slices.SortStableFunc(list, func(a, b located) int { return cmp.Compare(a.first, b.first) })
	for _, one := range list {
		at[one.sub] = names.Assign(one.location)
	}
	return at, nil
}

// allEntries lists the subjects that may have files.
func allEntries(ctx context.Context, src layouts.Source) iter.Seq2[events.Subject, error] {
	return func(yield func(events.Subject, error) bool) {
		for _, kind := range []string{events.KindFile, kinds[0].kind, kinds[1].kind, kinds[2].kind, events.KindSession} {
			for info, err := range src.Subjects(ctx, kind) {
				sub := info.Subject
				if err == nil && (sub.IsSession() && !hasOwnFiles(sub.ID) || kind == events.KindFile && !strings.HasPrefix(sub.ID, rootName+"/")) {
					continue
				}
				if !yield(sub, err) || err != nil {
					return
				}
			}
		}
	}
}

package taverndir

import (
	"context"
	"errors"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/tavern/internal/nodefile"
)

// Format is the layout's name.
const Format = "tavern"

// EventSource is the CloudEvents source of every event that an import makes.
const EventSource = "urn:tally:import:tavern"

var stamp = sessiondir.Stamp{Format: Format, Source: EventSource}

// rootName is the name of the folder and of the root.
const rootName = ".tavern"

// Layout is the layout of this package.
type Layout struct {
	// Flat treats any folder as a flat folder of documents, <id>.md each. By default it must be recognized as one.
	Flat bool

	kinds []string // that have files in a tree; empty: all
	layer string   // that has files in a tree; "": any
}

var (
	_ layouts.Layout   = Layout{}
	_ layouts.Chooser  = Layout{}
	_ layouts.Rooted   = Layout{}
	_ layouts.Sharer   = Layout{}
	_ layouts.Planner  = Layout{}
	_ layouts.Selector = Layout{}
	_ layouts.Rooted   = planned{}
	_ layouts.Chooser  = planned{}
)

// Name implements layouts.Layout.
func (Layout) Name() string { return Format }

// Exports implements layouts.Chooser: it exports agents, inboxes and queues that were not imported.
func (Layout) Exports(kind string) bool {
	return kind == events.KindAgent || kind == events.KindInbox || kind == events.KindQueue
}

// Sniff implements layouts.Layout. It accepts the folder .tavern, its parent, and a folder of documents if one is an
// agent's.
func (l Layout) Sniff(name string) bool {
	_, _, err := l.locate(name)
	return err == nil
}

// Root implements layouts.Rooted.
func (Layout) Root() string { return rootName }

// HasFiles implements layouts.Rooted. It reports whether the store has a document with a folder, or a kept file.
func (Layout) HasFiles(ctx context.Context, src layouts.Source) (bool, error) {
	for _, k := range kinds {
		for _, err := range src.Subjects(ctx, k.kind) {
			return err == nil, err
		}
	}
	for info, err := range src.Subjects(ctx, events.KindFile) {
		if err != nil || strings.HasPrefix(info.Subject.ID, rootName+"/") {
			return err == nil, err
		}
	}
	return false, nil
}

// locate finds the folder for a path, and whether it is a flat one.
func (l Layout) locate(name string) (at sessiondir.Location, flat bool, err error) {
	at, err = sessiondir.Shape{Layout: Format, Inside: rootName, IsRoot: looksLikeRoot,
		HasSession: func(string) bool { return false }, Nothing: "holds neither .tavern nor the documents of agents"}.Find(name)
	if err != nil {
		abs, wrong := filepath.Abs(name)
		if wrong != nil || !isDir(abs) || !l.Flat && !holdsNode(abs) {
			return at, false, err
		}
		at, flat = sessiondir.Location{Root: abs}, true
	}
	at.Name = rootName
	at, err = at.Settled()
	return at, flat, err
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// looksLikeRoot reports whether a folder has the name .tavern and one of its subfolders, or has agents or servitors.
func looksLikeRoot(dir string) bool {
	if filepath.Base(dir) == rootName {
		for _, name := range []string{docsDir, workflowsDir, overlaysDir, agentsDir, servitorsDir, "inbox", "queues", "flows", "changesets"} {
			if isDir(filepath.Join(dir, name)) {
				return true
			}
		}
	}
	for _, pattern := range []string{agentsDir + "/*/" + agentName, servitorsDir + "/*/" + servitorName} {
		if list, err := filepath.Glob(filepath.Join(escapeGlob(dir), filepath.FromSlash(pattern))); err == nil && len(list) > 0 {
			return true
		}
	}
	return false
}

// escapeGlob returns a pattern that matches exactly a path.
func escapeGlob(name string) string {
	if filepath.Separator == '\\' {
		return name // patterns have no escapes there
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// maxSniffed bounds the size of files that are read to recognize a folder.
const maxSniffed = 1 << 20

// holdsNode reports whether a folder has an agent's document.
func holdsNode(dir string) bool {
	ids, err := List(dir)
	if err != nil {
		return false
	}
	for _, id := range ids {
		name := filepath.Join(dir, id+mdSuffix)
		if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() > maxSniffed {
			continue
		}
		if text, err := os.ReadFile(name); err == nil {
			if n, err := nodefile.Parse(text); err == nil && !n.Servitor {
				return true
			}
		}
	}
	return false
}

// List returns the ids of the documents in a folder of the oldest layout, sorted: the names of its .md files, without
// the suffix. It skips hidden files, other files and subfolders.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries { // sorted by name
		if id, ok := strings.CutSuffix(e.Name(), mdSuffix); ok && id != "" && e.Type().IsRegular() && !strings.HasPrefix(id, ".") {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Subject implements layouts.Layout. It returns the document of a file, or the session of an agent's file.
func (Layout) Subject(ctx context.Context, src layouts.Source, _, name string) (events.Subject, bool) {
	if name == "" || path.Clean(name) != name || strings.HasPrefix(name, "/") || strings.HasPrefix(name, "../") {
		return events.Subject{}, false
	}
	for info, err := range src.Subjects(ctx, events.KindAgent) {
		if err != nil {
			break
		}
		doc, err := src.Loader().Document(ctx, info.Subject, 0)
		if err == nil && (attribute(doc, "path") == name || attribute(doc, "path") == path.Join(path.Dir(name), agentName)) {
			return events.Session(src.Namespace(), agentPrefix+info.Subject.ID), true
		}
	}
	if box, id, _, ok := boxAt(name); ok {
		return events.Session(src.Namespace(), boxes[box].kind+"/"+id), true
	}
	if kind, id, ok := documentAt(name, false); ok {
		return events.Document(src.Namespace(), kind, id), true
	}
	return sessiondir.DocumentOf(src.Namespace(), rootName, name, ""), true
}

// attribute returns a document's attribute.
func attribute(doc *projector.Document, name string) string {
	if last := doc.Last(); last != nil {
		return last.Meta.Attributes[name]
	}
	return ""
}

// documentAt returns the kind and the id of a file's document.
func documentAt(name string, flat bool) (kind, id string, ok bool) {
	if flat {
		id, ok = strings.CutSuffix(name, mdSuffix)
		return kinds[0].kind, id, ok && id != "" && !strings.Contains(id, "/")
	}
	for _, k := range kinds {
		below, in := strings.CutPrefix(name, k.dir+"/")
		if !in || below == "" || k.kind == "workflow" && !strings.HasSuffix(below, jsonSuffix) {
			continue
		}
		return k.kind, idOf(below, k.suffix), true
	}
	return "", "", false
}

// Files implements layouts.Layout: the files of an agent, an inbox or a queue.
func (l Layout) Files(ctx context.Context, src layouts.Source, s *projector.Session) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		p, err := l.Planned(ctx, src)
		if err != nil {
			yield(layouts.File{Path: flat(s.Subject.ID)}, err)
			return
		}
		p.Files(ctx, src, s)(yield)
	}
}

// RootFiles implements layouts.Layout: the documents with a folder, and the kept files.
func (l Layout) RootFiles(ctx context.Context, src layouts.Source, root string) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		p, err := l.Planned(ctx, src)
		if err != nil {
			yield(layouts.File{Path: docsDir}, err)
			return
		}
		p.RootFiles(ctx, src, root)(yield)
	}
}

// Planned implements layouts.Planner.
func (l Layout) Planned(ctx context.Context, src layouts.Source) (layouts.Renderer, error) {
	names, err := namesOf(ctx, src)
	return planned{l, names}, err
}

// planned is the layout in an export, with the paths of all entries.
type planned struct {
	Layout
	names map[events.Subject]string
}

// Files implements layouts.Renderer.
func (p planned) Files(ctx context.Context, src layouts.Source, s *projector.Session) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		if !hasOwnFiles(s.Subject.ID) {
			return
		}
		at, ok := p.names[s.Subject]
		if !ok {
			location, err := locationOf(ctx, src, s.Subject, true)
			if err != nil {
				if !errors.Is(err, projector.ErrNotFound) {
					yield(layouts.File{Path: flat(s.Subject.ID)}, err)
				}
				return
			}
			at = location.Path
		}
		filesAt(ctx, src, s.Subject, at, s)(yield)
	}
}

// RootFiles implements layouts.Renderer.
func (p planned) RootFiles(ctx context.Context, src layouts.Source, root string) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		for f, err := range sessiondir.ExportRoot(ctx, src, root, nil) {
			if !yield(f, err) {
				return
			}
		}
		for sub, err := range allEntries(ctx, src) {
			if err != nil {
				yield(layouts.File{Path: docsDir}, err)
				return
			}
			if sub.IsSession() || sub.Kind == events.KindFile {
				continue
			}
			f, err := documentFile(ctx, src, sub, p.names[sub])
			if errors.Is(err, projector.ErrNotFound) {
				continue
			}
			if f.Path == "" {
				f.Path = docsDir
			}
			if !yield(f, err) {
				return
			}
		}
	}
}

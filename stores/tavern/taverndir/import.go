package taverndir

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/tavern/internal/flow"
)

// Import implements layouts.Layout. It imports a folder into a store: .tavern, its parent, or a flat folder. It never
// writes into the folder.
//
// A repeated import adds only what has changed. If the store has another version of a file, imported from elsewhere or
// changed since, Import reports it and leaves it alone, unless o.Merge is set. A node file that cannot be parsed is
// kept as it is, without an agent. Invalid lines of a log are skipped, reported and kept. An error means that the
// import ended early; the next import continues.
func (l Layout) Import(ctx context.Context, target layouts.Target, name string, o layouts.ImportOptions) (layouts.Report, error) {
	at, flat, err := l.locate(name)
	if err != nil {
		return layouts.Report{}, err
	}
	return sessiondir.Import(ctx, target, stamp, at, o, bringer(ctx, flat))
}

// ImportFrom implements layouts.Layout. The storage holds .tavern, or, if l.Flat is set, a flat folder.
func (l Layout) ImportFrom(ctx context.Context, target layouts.Target, st layouts.Storage, root layouts.Root, o layouts.ImportOptions) (layouts.Report, error) {
	root.Name = rootName
	return sessiondir.ImportFrom(ctx, target, stamp, st, root, o, bringer(ctx, l.Flat))
}

func bringer(ctx context.Context, flat bool) func(*sessiondir.Intake) error {
	return func(in *sessiondir.Intake) error {
		return (&importer{Intake: in, flat: flat, seen: make(map[events.Subject]string), whole: make(map[string]bool)}).run(ctx)
	}
}

type importer struct {
	*sessiondir.Intake
	flat  bool
	seen  map[events.Subject]string // documents, with their files
	whole map[string]bool           // files that are kept whole
}

// isLeft reports whether a file of a partial import belongs to an agent, an inbox or a queue that did not use it. It is
// not kept beside it, because an export would have two files with that name.
func (im *importer) isLeft(ctx context.Context, name string) (bool, error) {
	if !im.Options.Part {
		return false, nil
	}
	have, err := sessiondir.Load(ctx, im.Target, sessiondir.DocumentOf(im.Target.Namespace(), rootName, name, ""))
	if _, linked := have.Session(); err != nil || have.Exists && !linked {
		return false, err // it is kept already
	}
	entry, ok, err := Layout{Flat: im.flat}.EntryAt(ctx, im.Target, layouts.Root{}, name)
	if err != nil || !ok || !entry.IsSession() {
		return false, err
	}
	p, err := locationOf(ctx, im.Target, entry, false)
	if errors.Is(err, projector.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	at := p.Path
	if p.Apart != "" && strings.HasPrefix(name, p.Apart+"/") {
		at = p.Apart
	}
	files, err := entryFiles(ctx, im.Target, entry, at, nil)
	i := slices.IndexFunc(files, func(f layouts.File) bool { return f.Path == name })
	if err != nil || i < 0 {
		return false, err
	}
	f, err := im.Tree.File(name)
	if err == nil {
		err = im.Tree.Hash(f)
	}
	if err != nil {
		return false, im.Spare(ctx, name, err)
	}
	sum := sha256.New()
	if err := files[i].Write(sum); err != nil {
		return false, err
	}
	if sessiondir.HexSum(sum) != f.Sum {
		im.Problem(name, 0, fmt.Sprintf("is not a valid file of %s: left as it was", entry.ID))
	}
	return true, nil
}

// unkept drops the document of a kept file that is used now.
func (im *importer) unkept(ctx context.Context, files ...string) error {
	if !im.Options.Part {
		return nil // the import drops all documents of files that are gone
	}
	for _, name := range files {
		doc := sessiondir.DocumentOf(im.Target.Namespace(), rootName, name, "")
		have, err := sessiondir.Load(ctx, im.Target, doc)
		if _, linked := have.Session(); err == nil && have.Exists && !linked {
			err = im.Drop(ctx, doc)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (im *importer) run(ctx context.Context) error {
	var files []string
	if err := im.list("", &files); err != nil {
		return err
	}
	agents := slices.DeleteFunc(slices.Clone(files), func(name string) bool { return !im.mayBeAgent(name) })
	im.Expect(len(agents))
	taken := make(map[string]bool)
	for _, name := range agents {
		done, err := im.agent(ctx, name)
		if err != nil {
			return err
		}
		for _, file := range done {
			taken[file] = true
		}
	}
	done, err := im.importBoxes(ctx, files)
	if err != nil {
		return err
	}
	for _, file := range done {
		taken[file] = true
	}
	for _, name := range files {
		if taken[name] || len(im.Options.Only) > 0 {
			continue
		}
		if err := im.file(ctx, name); err != nil {
			return err
		}
	}
	if len(im.Options.Only) > 0 {
		return ctx.Err()
	}
	return im.DropRootFiles(ctx, im.whole, nil)
}

// list finds the files of a folder and its subfolders, sorted.
func (im *importer) list(dir string, files *[]string) error {
	entries, err := im.Tree.Entries(path.Join(".", dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name)
		switch {
		case isSkipped(e.Name):
		case e.Dir:
			if err := im.list(name, files); err != nil {
				return err
			}
		case sessiondir.IsOdd(e):
			im.Skipped(name)
		default:
			*files = append(*files, name)
		}
	}
	return nil
}

// mayBeAgent reports whether a file has the path of an agent's node file.
func (im *importer) mayBeAgent(name string) bool {
	dir, base := path.Split(name)
	if im.flat {
		return dir == "" && strings.HasSuffix(base, mdSuffix)
	}
	top, rest, _ := strings.Cut(strings.TrimSuffix(dir, "/"), "/")
	single := rest != "" && !strings.Contains(rest, "/")
	return single && (top == agentsDir && base == agentName || top == servitorsDir && base == servitorName)
}

// isOfKind reports whether a file in the folder of a kind can be a document of that kind. It reports files that cannot.
// If the store has a document at the path, the file is left alone.
func (im *importer) isOfKind(ctx context.Context, name string, doc events.Subject) (is, left bool, err error) {
	reason := ""
	switch doc.Kind {
	case "workflow":
		reason, err = im.wrongTemplate(name)
	case "overlay":
		if agent, rest, deep := strings.Cut(doc.ID, "/"); !deep || agent == "" || rest == "" {
			reason = "an overlay is overlays/<agent>/<path>"
		}
	}
	if err != nil || reason == "" {
		return err == nil, false, err
	}
	have, err := sessiondir.Load(ctx, im.Target, doc)
	if err == nil && have.Exists {
		im.seen[doc] = name
		im.Problem(name, 0, "is not a valid "+doc.Kind+": "+reason+": the store keeps its version")
		return false, true, nil
	}
	im.Problem(name, 0, "is not a valid "+doc.Kind+": "+reason+": kept as it is")
	return false, false, err
}

// wrongTemplate returns why a file is not the template of a workflow, or "".
func (im *importer) wrongTemplate(name string) (string, error) {
	f, err := im.Tree.File(name)
	if err != nil {
		return "", err
	}
	if f.Size > sessiondir.WholeLimit(im.Target) {
		return fmt.Sprintf("a template has at most %d bytes", sessiondir.WholeLimit(im.Target)), nil
	}
	data, err := im.Tree.Read(f, f.Size+1)
	if err != nil {
		return "", err
	}
	_, err = flow.Parse(data)
	if invalid, ok := errors.AsType[*events.InvalidError](err); ok {
		return invalid.Field + ": " + invalid.Reason, nil
	}
	return "", err
}

// noteFolder reports a file in a folder from which nothing is imported.
func (im *importer) noteFolder(name string) {
	top, _, _ := strings.Cut(name, "/")
	if !im.flat && (top == "flows" || top == "changesets") {
		im.Report.Notes = append(im.Report.Notes, layouts.Problem{File: name, Reason: top + " are in the log alone: kept as it is, nothing is taken from it"})
	}
}

// file imports a file that is not an agent's: a document, or a file that is kept whole.
func (im *importer) file(ctx context.Context, name string) error {
	kind, id, ok := documentAt(name, im.flat)
	doc := events.Document(im.Target.Namespace(), kind, id)
	if ok {
		is, left, err := im.isOfKind(ctx, name, doc)
		if left || err != nil {
			return im.Spare(ctx, name, err)
		}
		ok = is
	} else {
		im.noteFolder(name)
	}
	if ok && doc.Validate() == nil {
		if other := im.seen[doc]; other != "" {
			im.Problem(name, 0, fmt.Sprintf("is the same document as %s: kept as it is", other))
			ok = false
		}
	} else {
		ok = false
	}
	if !ok {
		if left, err := im.isLeft(ctx, name); left || err != nil {
			return err
		}
		doc = sessiondir.DocumentOf(im.Target.Namespace(), rootName, name, "")
		im.whole[name] = true
	} else if err := im.unkept(ctx, name); err != nil {
		return err
	}
	im.seen[doc] = name
	added := im.Report.Events
	f, err := im.KeepRootFile(ctx, name, func(string, string, string) events.Subject { return doc })
	if f != nil && ok { // it is the document, not a kept file
		im.Report.Files.Whole--
		im.Report.Files.Add(layouts.Exact)
	}
	if errors.Is(err, sessiondir.ErrChanged) && added == im.Report.Events {
		im.Problem(name, 0, err.Error())
		return nil
	}
	return err
}

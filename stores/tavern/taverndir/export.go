package taverndir

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/foreign"
	"github.com/tallylog/tally/stores/tavern/internal/nodefile"
)

const (
	agentPrefix  = events.KindAgent + "/" // of the ids of agents' sessions
	agentName    = "agent.md"
	servitorName = "servitor.md"
)

// found is a document that has a file.
type found struct {
	sub   events.Subject
	first events.Offset // of its records: the one with the lower one keeps its name
	dir   string
	name  string // below dir
}

// documents lists those that are there, of the kinds that have a folder. What was imported
// keeps the name that it had; it comes first.
func documents(ctx context.Context, src formats.Source) ([]found, error) {
	var list []found
	for _, k := range kinds {
		for info, err := range src.Subjects(ctx, k.kind) {
			if err != nil {
				return nil, err
			}
			doc, err := src.Loader().Document(ctx, info.Subject, 0)
			if errors.Is(err, projector.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			d := found{sub: info.Subject, dir: k.dir, name: pathOf(info.Subject.ID, k.suffix, k.suffix == jsonSuffix || isMarkdown(doc))}
			if name := foreign.PathOf(attribute(doc, "path")); name != "" && attribute(doc, "root") == rootName {
				d.dir, d.name = "", name
			} else if d.first, err = firstOf(ctx, src, info.Subject); err != nil {
				return nil, err
			}
			list = append(list, d)
		}
	}
	slices.SortStableFunc(list, func(a, b found) int { return cmp.Compare(a.first, b.first) })
	return list, nil
}

// isMarkdown reports whether the file of a document ends in .md.
func isMarkdown(doc *projector.Document) bool {
	return strings.HasPrefix(doc.Last().ContentType, "text/markdown")
}

// firstOf returns the offset of a subject's first record.
func firstOf(ctx context.Context, src formats.Source, sub events.Subject) (events.Offset, error) {
	for rec, err := range src.Loader().Source.Read(ctx, events.Range{Subject: sub, Limit: 1}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			return damage.Offset, nil
		}
		return rec.Offset, err
	}
	return 0, nil
}

// file is the file of a document, under a name that no other one has.
func (d found) file(ctx context.Context, src formats.Source, t *taken) (formats.File, error) {
	name := path.Join(d.dir, d.name)
	if d.dir == "" {
		t.take(name)
	} else {
		name = t.place(d.dir, d.name)
	}
	doc, err := src.Loader().Document(ctx, d.sub, 0)
	if err != nil {
		return formats.File{Path: name}, err
	}
	return formats.File{Path: name, Mode: modeOf(doc), Way: formats.Exact,
		Write: func(w io.Writer) error { return foreign.WriteContent(ctx, src, doc, w) }}, nil
}

// modeOf is the mode of the file that a document was, or that of an ordinary one.
func modeOf(doc *projector.Document) fs.FileMode {
	mode, err := strconv.ParseInt(attribute(doc, "mode"), 8, 32)
	if err != nil {
		mode = 0
	}
	return formats.FileMode(mode)
}

// agentFiles are the node file of an agent and its log.
func agentFiles(ctx context.Context, src formats.Source, s *projector.Session) ([]formats.File, error) {
	id := strings.TrimPrefix(s.Subject.ID, agentPrefix)
	doc, err := src.Loader().Document(ctx, events.Document(src.Namespace(), events.KindAgent, id), 0)
	gone := errors.Is(err, projector.ErrNotFound)
	switch {
	case gone && s.Ledger.Text("purgedAt") != "":
		return nil, nil
	case err != nil && !gone:
		return nil, err
	}
	var files []formats.File
	node := path.Join(agentsDir, formats.FileName(id), agentName)
	if !gone {
		if node, err = nodePath(ctx, src, id, doc); err != nil {
			return nil, err
		}
		files = append(files, formats.File{Path: node, Mode: modeOf(doc), Way: formats.Exact,
			Write: func(w io.Writer) error { return foreign.WriteContent(ctx, src, doc, w) }})
	}
	text, mode, err := sessionsOf(ctx, src, s, sessionsPath(node, id))
	if err != nil || text == nil {
		return files, err
	}
	return append(files, formats.File{Path: sessionsPath(node, id), Mode: mode, Way: formats.Exact,
		Write: func(w io.Writer) error { _, err := w.Write(text); return err }}), nil
}

// sessionsPath is where the log of an agent is whose node file has a path.
func sessionsPath(node, id string) string {
	if dir := path.Dir(node); dir != "." {
		return path.Join(dir, sessionsName)
	}
	return path.Join(agentsDir, formats.FileName(id), sessionsName) // a flat folder has none
}

// nodePath is the path of an agent's node file: the one that it had, or one that is made of
// the agent's name. Of several agents with one name the first has it, the others the
// beginning of their ids behind it.
func nodePath(ctx context.Context, src formats.Source, id string, doc *projector.Document) (string, error) {
	if name := foreign.PathOf(attribute(doc, "path")); name != "" && attribute(doc, "root") == rootName {
		return name, nil
	}
	mine := nodeDir(doc)
	first, err := firstOf(ctx, src, doc.Subject)
	if err != nil {
		return "", err
	}
	for info, err := range src.Subjects(ctx, events.KindAgent) {
		if err != nil {
			return "", err
		}
		if info.Subject == doc.Subject {
			continue
		}
		other, err := src.Loader().Document(ctx, info.Subject, 0)
		if err != nil {
			continue // that one has no folder
		}
		there := nodeDir(other)
		if name := foreign.PathOf(attribute(other, "path")); name != "" && attribute(other, "root") == rootName {
			there = path.Base(path.Dir(name))
		}
		if folded(there) != folded(mine) {
			continue
		}
		if at, err := firstOf(ctx, src, info.Subject); err != nil || at < first {
			return path.Join(agentsDir, mine+"=~"+formats.FileName(id), agentName), err
		}
	}
	return path.Join(agentsDir, mine, agentName), nil
}

// nodeDir is the name of the folder of a node file, as its name has it.
func nodeDir(doc *projector.Document) string {
	n, err := nodefile.Parse(doc.Data)
	if err != nil {
		return formats.FileName(doc.Subject.ID)
	}
	return slug(n.Name)
}

// sessionsOf is the log of an agent as a file, nil if there is none: what was imported, with
// what was logged since.
func sessionsOf(ctx context.Context, src formats.Source, s *projector.Session, name string) ([]byte, fs.FileMode, error) {
	entries := entriesOf(s.Ledger)
	doc, err := src.Loader().Document(ctx, foreign.DocumentOf(src.Namespace(), rootName, name, ""), 0)
	if errors.Is(err, projector.ErrNotFound) {
		if len(entries) == 0 {
			return nil, 0, nil
		}
		text, err := renderSessions(entries)
		return text, formats.FileMode(0), err
	}
	if err != nil {
		return nil, 0, err
	}
	text, err := grown(doc.Data, entries)
	if text == nil {
		text = []byte{}
	}
	return text, modeOf(doc), err
}

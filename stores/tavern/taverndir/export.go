package taverndir

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/tavern/internal/nodefile"
)

const (
	agentPrefix  = events.KindAgent + "/" // of ids of agents' sessions
	agentName    = "agent.md"
	servitorName = "servitor.md"
)

// isMarkdown reports whether the file of a document ends in .md.
func isMarkdown(doc *projector.Document) bool {
	return strings.HasPrefix(doc.Last().ContentType, "text/markdown")
}

// firstOf returns the offset of a subject's first record, or 0.
func firstOf(ctx context.Context, src layouts.Source, sub events.Subject) (events.Offset, error) {
	first, err := src.Loader().First(ctx, sub)
	if errors.Is(err, projector.ErrNotFound) {
		err = nil
	}
	return first, err
}

// documentFile returns the file of a document.
func documentFile(ctx context.Context, src layouts.Source, sub events.Subject, at string) (layouts.File, error) {
	doc, err := src.Loader().Document(ctx, sub, 0)
	if err != nil {
		return layouts.File{Path: at}, err
	}
	return layouts.File{Path: at, Mode: modeOf(doc), Way: layouts.Exact,
		Write: func(w io.Writer) error { return sessiondir.WriteContent(ctx, src, doc, w) }}, nil
}

// modeOf returns the mode of the imported file, or that of an ordinary one.
func modeOf(doc *projector.Document) fs.FileMode {
	mode, err := strconv.ParseInt(attribute(doc, "mode"), 8, 32)
	if err != nil {
		mode = 0
	}
	return layouts.FileMode(mode)
}

// agentFiles returns the node file of an agent and its log, in the agent's folder.
func agentFiles(ctx context.Context, src layouts.Source, s *projector.Session, at string) ([]layouts.File, error) {
	id := strings.TrimPrefix(s.Subject.ID, agentPrefix)
	doc, err := src.Loader().Document(ctx, agentDoc(s.Subject), 0)
	gone := errors.Is(err, projector.ErrNotFound)
	switch {
	case gone && s.Ledger.Text("purgedAt") != "":
		return nil, nil
	case err != nil && !gone:
		return nil, err
	}
	var files []layouts.File
	node := path.Join(at, agentName)
	if !gone {
		if name, ok := imported(doc); ok {
			node = name
		}
		files = append(files, layouts.File{Path: node, Mode: modeOf(doc), Way: layouts.Exact,
			Write: func(w io.Writer) error { return sessiondir.WriteContent(ctx, src, doc, w) }})
	}
	text, mode, err := sessionsOf(ctx, src, s, sessionsPath(node, id))
	if err != nil || text == nil {
		return files, err
	}
	return append(files, layouts.File{Path: sessionsPath(node, id), Mode: mode, Way: layouts.Exact,
		Write: func(w io.Writer) error { _, err := w.Write(text); return err }}), nil
}

// sessionsPath returns the path of an agent's log from that of its node file.
func sessionsPath(node, id string) string {
	if dir := path.Dir(node); dir != "." {
		return path.Join(dir, sessionsName)
	}
	return path.Join(agentsDir, layouts.FileName(id), sessionsName) // a flat folder has no logs
}

// nodeDir returns the name of a node file's folder, made from the agent's name.
func nodeDir(doc *projector.Document) string {
	n, err := nodefile.Parse(doc.Data)
	if err != nil {
		return layouts.FileName(doc.Subject.ID)
	}
	return slug(n.Name)
}

// sessionsOf returns an agent's log as a file, or nil if it has none: the imported file, with newer entries appended.
func sessionsOf(ctx context.Context, src layouts.Source, s *projector.Session, name string) ([]byte, fs.FileMode, error) {
	entries := entriesOf(s.Ledger)
	doc, err := src.Loader().Document(ctx, sessiondir.DocumentOf(src.Namespace(), rootName, name, ""), 0)
	if errors.Is(err, projector.ErrNotFound) || err == nil && isOfAnother(doc, s) {
		if len(entries) == 0 {
			return nil, 0, nil
		}
		text, err := renderSessions(entries)
		return text, layouts.FileMode(0), err
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

// isOfAnother reports whether a kept document is the log of another agent, which had the folder before.
func isOfAnother(doc *projector.Document, s *projector.Session) bool {
	links := doc.Last().Meta.Links
	return len(links) > 0 && !slices.Contains(links, events.Link{Rel: "session", To: s.Subject.String()})
}

package taverndir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/tavern/internal/nodefile"
)

// agentFolder is an agent in the imported folder.
type agentFolder struct {
	file    *sessiondir.File
	node    nodefile.Node
	id      string
	logFile *sessiondir.File // sessions.jsonl, or nil
	lines   []logEntry
}

// agent imports the agent of a node file, and returns the files that it used. It returns no files if the file is not an
// agent's.
func (im *importer) agent(ctx context.Context, name string) ([]string, error) {
	af, err := im.read(name)
	if err != nil || af == nil {
		return nil, im.Settle(ctx, name, err)
	}
	if !im.Wants(af.id) && !im.Wants(agentPrefix+af.id) {
		return nil, nil
	}
	files := []string{name}
	if af.logFile != nil {
		files = append(files, af.logFile.Full)
	}
	doc := events.Document(im.Target.Namespace(), events.KindAgent, af.id)
	if other := im.seen[doc]; other != "" {
		im.Problem(name, 0, fmt.Sprintf("is the same agent as %s: kept as it is", other))
		return nil, nil
	}
	if other, ok, err := im.another(ctx, name, doc); ok || err != nil {
		if ok {
			im.Problem(name, 0, fmt.Sprintf("is the file of %s, and has the id of another agent: left as it was", other.ID))
		}
		return files, err
	}
	im.seen[doc] = name
	err = im.unkept(ctx, files...)
	if err == nil {
		err = sessiondir.Retry(ctx, func(bool) error { return im.bring(ctx, af, doc) })
	}
	return files, im.Settle(ctx, name, err)
}

// another returns the agent that already has a file of a partial import, if it is not the document's.
func (im *importer) another(ctx context.Context, name string, doc events.Subject) (events.Subject, bool, error) {
	if !im.Options.Part {
		return events.Subject{}, false, nil
	}
	p, err := locationOf(ctx, im.Target, agentSession(doc), true)
	switch {
	case err != nil && !errors.Is(err, projector.ErrNotFound):
		return events.Subject{}, false, err
	case p.Apart == "" && hasAt(p, doc.ID, name), p.Apart != "" && p.Apart == path.Dir(name):
		return events.Subject{}, false, nil // no other agent can have it
	}
	entry, ok, err := agentAt(ctx, im.Target, name)
	return entry, ok && entry != agentSession(doc), err
}

// read reads the files of an agent. It returns nil if the file is not an agent's.
func (im *importer) read(name string) (*agentFolder, error) {
	f, err := im.Tree.File(name)
	if err != nil {
		return nil, err
	}
	limit := sessiondir.WholeLimit(im.Target)
	if f.Size > limit {
		return nil, nil // it is kept whole
	}
	if f.Data, err = im.Tree.Read(f, limit+1); err != nil {
		return nil, err
	}
	f.Sum, f.Size = sessiondir.SumOf(f.Data), int64(len(f.Data))
	af := &agentFolder{file: f}
	if af.node, err = nodefile.Parse(f.Data); err != nil {
		if !im.flat { // a flat folder may have any document
			im.Problem(name, 0, err.Error()+": kept as it is, not an agent")
		}
		return nil, nil
	}
	if statusOf(af.node.State) == "" {
		reason := fmt.Sprintf("state: %q: want idle, working, waiting, verifying, done, error, archived or stopped:<reason>: kept as it is, not an agent", af.node.State)
		if im.flat { // a document of a flat folder may have any state
			im.Report.Notes = append(im.Report.Notes, layouts.Problem{File: name, Reason: reason})
		} else {
			im.Problem(name, 0, reason)
		}
		return nil, nil
	}
	for _, odd := range nodefile.Odd(f.Data) {
		im.Problem(name, 0, odd)
	}
	af.id = strings.ToLower(af.node.ID)
	return af, im.readLog(af, path.Join(path.Dir(name), sessionsName))
}

// readLog reads the log beside a node file, if it exists.
func (im *importer) readLog(af *agentFolder, name string) error {
	if im.flat {
		return nil
	}
	f, err := im.Tree.File(name)
	if err != nil {
		return nil //nolint:nilerr // the file does not exist
	}
	if f.Size > sessiondir.WholeLimit(im.Target) {
		return nil
	}
	if f.Data, err = im.Tree.Read(f, f.Size+1); err != nil {
		return err
	}
	f.Sum, f.Size, af.logFile = sessiondir.SumOf(f.Data), int64(len(f.Data)), f
	af.lines = parseSessions(f.Data, f.BadLine)
	f.EndLines()
	return nil
}

// bring imports an agent. The store has it unchanged, or not at all.
func (im *importer) bring(ctx context.Context, af *agentFolder, doc events.Subject) error {
	s, err := im.Load(ctx, agentPrefix+af.id)
	if err != nil {
		return err
	}
	have, err := sessiondir.Load(ctx, im.Target, doc)
	if err != nil {
		return err
	}
	if reason := im.refusal(af, s, have); reason != "" && !im.Options.Merge {
		im.Report.Sessions++
		im.Report.Refused = append(im.Report.Refused, agentPrefix+af.id)
		im.Problem(af.file.Full, 0, reason+": import into another namespace (--namespace), or take the folder's content over it (--merge)")
		return nil
	}
	before := im.Report.Events
	if err := im.write(ctx, af, s, have); err != nil {
		return err
	}
	if err := im.writeLog(ctx, af, s); err != nil {
		return err
	}
	folder := sessiondir.Folder{Files: []*sessiondir.File{af.file}}
	if af.logFile != nil {
		folder.Files = append(folder.Files, af.logFile)
	}
	switch {
	case s.Offset() == 0:
		im.Finish(folder, &im.Report.Added)
	case im.Report.Events == before:
		im.Finish(folder, &im.Report.Unchanged)
	default:
		im.Finish(folder, &im.Report.Changed)
	}
	for range folder.Files {
		im.Report.Files.Add(layouts.Exact)
	}
	return nil
}

// refusal returns why an import must not change an agent of the store.
func (im *importer) refusal(af *agentFolder, s *projector.Session, have sessiondir.Stored) string {
	ours := have.Meta.Attributes["marker"] == im.Marker
	switch {
	case s.Offset() == 0 && !have.Exists:
		return ""
	case s.Ledger.Kind != events.KindAgent:
		return "the session exists and is of kind " + s.Ledger.Kind
	case s.Ledger.Text("purgedAt") != "":
		return "the agent was purged"
	case have.Exists && have.Sum != af.file.Sum && !ours:
		return "the agent exists, came from elsewhere or was changed since, and differs from the file"
	case af.logFile != nil && !continues(af.lines, entriesOf(s.Ledger)):
		return "the agent's log has other entries than the file"
	}
	return ""
}

// continues reports whether one of two logs is a continuation of the other.
func continues(a, b []logEntry) bool {
	n := min(len(a), len(b))
	return slices.Equal(a[:n], b[:n])
}

// write writes a node file's contents to session and document, in one append.
func (im *importer) write(ctx context.Context, af *agentFolder, s *projector.Session, have sessiondir.Stored) error {
	var parts []log.Part
	evs, err := im.session(af, s)
	if err != nil {
		return err
	}
	if len(evs) > 0 {
		expect := log.At(0)
		if s.Offset() > 0 {
			expect = log.Since(s.Offset(), events.TypeSessionUpdated, events.TypeSessionCreated)
		}
		parts = append(parts, log.Part{Subject: s.Subject, Expect: expect, Events: evs})
	}
	if !have.Exists || have.Sum != af.file.Sum {
		e, err := im.FileEvent(ctx, have, &events.Origin{Root: im.Root, Marker: im.Marker}, af.file)
		if err != nil {
			return err
		}
		parts = append(parts, log.Part{Subject: have.Doc, Expect: log.At(have.Last), Events: []events.Event{e}})
	}
	_, err = im.AppendAll(ctx, parts)
	return err
}

// session returns the events that set the session's fields to those of the node file.
func (im *importer) session(af *agentFolder, s *projector.Session) ([]events.Event, error) {
	name, state := strings.ToValidUTF8(af.node.Name, "\ufffd"), statusOf(af.node.State)
	var list []events.Payload
	set := events.Fields{}
	if s.Ledger.Created == 0 {
		created := events.Timestamp(af.node.CreatedAt)
		if _, ok := created.Time(); !ok {
			var err error
			if created, err = im.Tree.Oldest(af.file); err != nil {
				return nil, err
			}
		}
		list = append(list, &events.SessionCreated{Kind: events.KindAgent, CreatedAt: created, Title: name, Layer: "project",
			Origin: &events.Origin{Format: Format, Root: im.Root, Marker: im.Marker}})
	} else if s.Ledger.Text("title") != name {
		set = append(set, text("title", name))
	}
	have := s.Ledger.Text("status")
	if have == "" {
		have = "idle"
	}
	if state != "" && state != have {
		set = append(set, text("status", state))
		if at := events.Timestamp(af.node.UpdatedAt); isStopped(state) && isTime(at) {
			set = append(set, text("finishedAt", string(at)))
		}
	}
	if len(set) > 0 {
		list = append(list, &events.SessionUpdated{Set: set, Reason: "import"})
	}
	return im.stamped(s, list)
}

// stamped makes events of payloads, with ids that follow from their contents.
func (im *importer) stamped(s *projector.Session, list []events.Payload) ([]events.Event, error) {
	var evs []events.Event
	for _, p := range list {
		e, err := events.New(im.Source, s.Subject, p)
		if err != nil {
			return nil, err
		}
		evs = append(evs, im.Named(e, s.Offset(), "agent", ""))
	}
	return evs, nil
}

func isTime(at events.Timestamp) bool { _, ok := at.Time(); return ok }

func text(name, value string) events.Field {
	raw, err := rawjson.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("taverndir: %v", err)) // the text is UTF-8
	}
	return events.Field{Name: name, Value: raw}
}

// statusOf returns a node file's state as a session's status, or "" if agents do not have the state.
func statusOf(state string) string {
	switch state {
	case "idle", "working", "waiting", "verifying", "done", "error", "archived":
		return state
	}
	if isStopped(state) && len(state) > len("stopped:") {
		return state
	}
	return ""
}

// writeLog appends the log's entries that the session lacks. If the session would spell the file differently, writeLog
// keeps the file.
func (im *importer) writeLog(ctx context.Context, af *agentFolder, s *projector.Session) error {
	if af.logFile == nil {
		return nil
	}
	had := entriesOf(s.Ledger)
	more := af.lines[min(len(had), len(af.lines)):]
	if !continues(af.lines, had) { // with --merge
		more = slices.DeleteFunc(slices.Clone(af.lines), func(e logEntry) bool { return slices.Contains(had, e) })
	}
	if len(more) > 0 {
		if err := im.appendLog(ctx, s, len(had), more); err != nil {
			return err
		}
	}
	rendered, err := renderSessions(af.lines)
	if err != nil || bytes.Equal(rendered, af.logFile.Data) && af.logFile.Mode == 0 {
		return err
	}
	doc := sessiondir.DocumentOf(im.Target.Namespace(), rootName, af.logFile.Full, "")
	return im.Keep(ctx, doc, &events.Origin{Root: im.Root, Marker: im.Marker}, af.logFile, events.Link{Rel: "session", To: s.Subject.String()})
}

func (im *importer) appendLog(ctx context.Context, s *projector.Session, had int, more []logEntry) error {
	now, err := im.Load(ctx, s.Subject.ID)
	if err != nil {
		return err
	}
	var evs []events.Event
	for i, e := range more {
		p, err := events.New(im.Source, s.Subject, &events.SessionUpdated{Set: events.Fields{}, Reason: e.reason, Log: &e.said})
		if err != nil {
			return err
		}
		evs = append(evs, im.Named(p, s.Offset(), fmt.Sprint("log ", had+i), e.said.At))
	}
	_, added, err := im.Target.AppendSeries(ctx, s.Subject, log.Since(now.Offset(), events.TypeSessionUpdated), evs...)
	im.Added(added)
	return err
}

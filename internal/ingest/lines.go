package ingest

import (
	"bytes"
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/ingest/tail"
	"github.com/tallylog/tally/internal/rawjson"
)

// isWhole reports whether text without a line end is complete: a JSON value, or the closing brace of a file that is one
// value on many lines.
func isWhole(line []byte) bool { return string(line) == "}" || rawjson.Check(line) == nil }

// fileOf returns the session of a file, from its name and its first line, which is in b or in the file.
func (in *Ingester) fileOf(f tail.File, b *tail.Batch) (agents.File, bool) {
	is, ok := in.fileBy(f, func() []byte {
		if b != nil && isFirst(b) {
			l := in.lineOf(b.Lines[0])
			return l.body
		}
		return in.tailer.Head(f)
	})
	if b != nil && b.Kind == tail.Gone {
		if _, session := splitNote(b.Note); session != "" { // its first line no longer exists
			is.Session, ok = session, true
		}
	}
	return is, ok
}

// order returns the read order of a session's files: by their start. If the name alone assigns a file to the wrong
// session, it waits without need.
func (in *Ingester) order(root, rel string) (group, position string) {
	is, ok := in.sources[root].Agent.File(rel, nil)
	if !ok || is.Thread != agents.Main {
		return "", ""
	}
	if strings.HasSuffix(is.Session, "/"+is.Stem) { // the session is named after it: the first file
		return is.Session, ""
	}
	return is.Session, is.Stem
}

func (in *Ingester) fileBy(f tail.File, head func() []byte) (agents.File, bool) {
	in.mu.Lock()
	known, ok := in.files[keyOf(f)]
	in.mu.Unlock()
	if ok {
		return known, true
	}
	first := head()
	is, ok := in.sources[f.Root].Agent.File(f.Rel, first)
	if f.Packed { // the stored form is the content
		is.Name = strings.TrimSuffix(is.Name, ".zst")
	}
	if ok && len(first) > 0 {
		is.Session = in.original(f, is)
		in.mu.Lock()
		in.files[keyOf(f)] = is
		in.mu.Unlock()
	}
	return is, ok
}

// isSettled drops the cached data of a file if its name implies the same.
func (in *Ingester) isSettled(key fileKey) {
	is, ok := in.sources[key.root].Agent.File(key.rel, nil)
	in.mu.Lock()
	defer in.mu.Unlock()
	if ok && in.files[key] == is {
		delete(in.files, key)
	}
}

// ownerKey identifies a file of a session in any folder.
func ownerKey(f agents.File) textSum { return sumOf(f.Session + "\x00" + f.Stem) }

// isElsewhere reports whether a file of a session is read in another folder, and still exists there. have is the log's
// state of the file, or nil.
func (in *Ingester) isElsewhere(f agents.File, key fileKey, have *fileState) bool {
	in.mu.Lock()
	owner, isKnown := in.owners[ownerKey(f)]
	in.mu.Unlock()
	if !isKnown && have != nil && len(have.lines) > 0 && have.called != escapeName(f.Name) {
		owner, isKnown = fileKey{key.root, have.called}, true
	}
	return isKnown && owner != key && !in.isGone(owner.root, owner.rel)
}

// owns notes that a file of a session is read here. It returns false if it is read in another folder.
func (in *Ingester) owns(f agents.File, key fileKey, have *fileState) bool {
	if in.isElsewhere(f, key, have) {
		return false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.owners[ownerKey(f)] = key
	return true
}

// isMovedTo notes that a file of a session was moved. It returns false if another file of that name is read.
func (in *Ingester) isMovedTo(f agents.File, from, to fileKey, have *fileState) bool {
	in.mu.Lock()
	if in.owners[ownerKey(f)] == from {
		in.owners[ownerKey(f)] = to
	}
	in.mu.Unlock()
	return in.owns(f, to, have)
}

// lines appends the lines of a batch that are not in the log.
func (in *Ingester) lines(ctx context.Context, b *tail.Batch, force bool) error {
	list := in.linesOf(b.Lines)
	is, ok := in.fileOf(b.File, b)
	if !ok {
		if len(list) > 0 {
			in.once(Problem{Root: b.File.Root, File: b.File.Rel, Reason: "the file was skipped: its first line is not one of " + in.sources[b.File.Root].Agent.Name() + ", or names no session"})
		}
		return nil
	}
	b.Note = in.noteOf(b.File, is)
	w, err := in.writer(ctx, in.sources[b.File.Root].Agent, is.Session, force)
	if err != nil {
		return err
	}
	return w.end(w.batch(b, is, list))
}

func (w *writer) batch(b *tail.Batch, is agents.File, list []lineParts) error {
	if !w.in.owns(is, keyOf(b.File), w.own.files[is.Stem]) {
		w.in.once(Problem{Root: b.File.Root, File: b.File.Rel, Session: is.Session, Reason: "the file was skipped: another folder has a file of this session with this name"})
		return nil
	}
	f := w.own.file(is)
	f.root = b.File.Root
	if err := w.owed(f); err != nil {
		return err
	}
	for i := range list {
		if err := w.line(f, &list[i], list[i:]); err != nil {
			return err
		}
	}
	if err := w.rewritten(f, b, list); err != nil {
		return err
	}
	if b.End && (w.in.o.Once || w.in.o.now().Sub(b.Changed) >= w.in.o.Quiet) {
		w.in.forgetDue(keyOf(b.File))
		f.follow = append(f.follow, f.hush()...)
		if err := w.owed(f); err != nil {
			return err
		}
	} else {
		w.in.isDueIn(keyOf(b.File), w.in.o.Quiet)
	}
	return w.shelved(f)
}

// owed appends the missing events of the last line after a crash.
func (w *writer) owed(f *fileState) error {
	owed := f.follow
	f.follow = nil
	for _, n := range owed {
		if err := w.fact(f, n); err != nil {
			return err
		}
	}
	return nil
}

// line appends the parts of a line that are not in the log. rest holds this line and the following ones.
func (w *writer) line(f *fileState, l *lineParts, rest []lineParts) error {
	i := sort.Search(len(f.lines), func(i int) bool { return f.lines[i].End > l.Start })
	if i < len(f.lines) {
		f.lines[i].reach(l)
	}
	at := l.Start
	for ; i < len(f.lines) && at < l.End; i++ {
		p := &f.lines[i]
		if p.beginsWith(l, at) {
			return nil
		}
		if p.Start != at || !p.isIn(l) {
			return w.replace(f, i)
		}
		at = p.End
	}
	switch {
	case at >= l.End:
		return nil
	case at > f.end():
		w.in.once(Problem{Root: f.root, File: f.Name, Session: f.Session, Offset: f.end(),
			Reason: fmt.Sprintf("%d bytes were read before and are not in the log: remove the state to read them again", at-f.end())})
	}
	left, ok := l.from(at)
	if !ok { // it continues after the log's end
		return w.replace(f, i-1)
	}
	return w.fresh(f, &left, rest)
}

// fresh appends a line that is not in the log, and its derived events.
func (w *writer) fresh(f *fileState, l *lineParts, rest []lineParts) error {
	m := f.tell(f.id(l.at()), l)
	if err := w.to(f, m.Session); err != nil {
		return err
	}
	id := f.lastID
	if m.ID != "" && len(m.ID) <= events.MaxIDLen && escapeName(m.ID) == m.ID {
		if at, ok := w.s.withoutFile[sumOf(m.ID)]; ok { // another program stored it directly from the agent
			delete(w.s.withoutFile, sumOf(m.ID))
			f.lines = append(f.lines, w.storedAt(l, at))
			f.follow = nil
			return nil
		}
		if !w.s.has(m.ID) {
			id = m.ID
		}
	}
	f.lastID = id
	for i := range f.follow {
		f.follow[i].id = idOf(id + "/" + f.follow[i].Key)
	}
	for _, fact := range m.Before {
		n := following{m.Session, idOf(id + "/" + fact.Key), m.Time, fact, sumOf(l.body)}
		if created, ok := fact.Payload.(*events.SessionCreated); ok {
			if at, ok := created.CreatedAt.Time(); ok && f.beganAt.IsZero() {
				f.beganAt = timeOf(at)
			}
			if created.CreatedAt == "" && n.Time.IsZero() && n.time.IsZero() {
				n.time = w.began(f, rest)
			}
		}
		if err := w.fact(f, n); err != nil {
			return err
		}
	}
	if err := w.to(f, m.Session); err != nil {
		return err
	}
	if err := w.turn(f, l, id, m, rest); err != nil {
		return err
	}
	return w.owed(f)
}

// when returns the time of a line: its own, else that of the previous lines, else the first in the file. An import is
// not an activity of the session.
func (w *writer) when(f *fileState, m agents.Meaning, rest []lineParts) time.Time {
	if at := timeOf(m.Time); !at.IsZero() {
		return at
	}
	if !f.lastAt.IsZero() {
		return f.lastAt
	}
	return w.began(f, rest)
}

// began returns the first time in the lines of a file, else that of the log's clock.
func (w *writer) began(f *fileState, rest []lineParts) time.Time {
	if !f.beganAt.IsZero() {
		return f.beganAt
	}
	fold := w.s.agent.Fold(f.File)
	for i := range rest {
		if at := timeOf(fold.Line(rest[i].Span, rest[i].body).Time); !at.IsZero() {
			f.beganAt = at
			return at
		}
	}
	f.beganAt = w.in.o.Log.Now()
	return f.beganAt
}

// turn appends the line itself.
func (w *writer) turn(f *fileState, l *lineParts, id string, m agents.Meaning, rest []lineParts) error {
	entry, err := l.entry(m)
	if err != nil {
		return err
	}
	e, err := events.New(sourceLines+w.s.agent.Name(), w.s.sub, &events.TurnAppended{Entries: []events.Entry{entry}})
	if err != nil {
		return err
	}
	e.ID, e.Time = id, w.when(f, m, rest)
	e = e.WithExtension(extLine, spell(f.Name, l.Span))
	if w.s != w.own {
		e = e.WithExtension(extOwner, escapeName(w.own.sub.ID))
	}
	if err := w.event(e); err != nil {
		return err
	}
	w.lines = append(w.lines, written{len(w.series) - 1, f, len(f.lines)})
	f.lines, f.called = append(f.lines, w.storedAt(l, 0)), escapeName(f.Name)
	w.in.count(func(s *Status) { s.redactedOf(l.found) })
	return nil
}

// storedAt returns the entry of an appended line.
func (w *writer) storedAt(l *lineParts, at events.Offset) storedLine {
	p := l.storedAt(at)
	if w.s != w.own {
		p.session = w.s.sub.ID
	}
	return p
}

// resume returns how far the log has a file, for a tailer without that state.
func (in *Ingester) resume(t tail.File, head func() []byte) (tail.Position, bool) {
	ctx, agent := context.Background(), in.sources[t.Root].Agent
	is, ok := in.fileBy(t, head)
	if !ok || !in.decideBy(ctx, t.Root, is, head) {
		return tail.Position{}, false
	}
	sub := in.subject(is.Session)
	s, err := in.session(ctx, agent, sub, sub, false)
	if err != nil { // the file is read from its beginning, which only costs time
		return tail.Position{}, false
	}
	defer in.give(s, nil)
	f := s.files[is.Stem]
	if f == nil || len(f.lines) == 0 || f.called != escapeName(is.Name) || in.isElsewhere(is, keyOf(t), f) {
		return tail.Position{}, false // all of a file with a new name is read: it may have changed, and its lines may name the folder
	}
	last := f.lines[len(f.lines)-1]
	switch {
	case f.quiet && len(f.follow) == 0 && s.isShelved(f, is):
		return tail.Position{Offset: f.end(), Before: bytes.Clone(f.text), Note: in.noteOf(t, is)}, true
	case last.Start == 0:
		return tail.Position{}, false
	}
	// The last line is delivered again, and acknowledged when all its derived events are stored.
	return tail.Position{Offset: last.Start, Note: in.noteOf(t, is)}, true
}

package ingest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/tallylog/tally/agents"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/tail"
)

// isWhole reports whether what has no end of line is a line.
func isWhole(line []byte) bool { return rawjson.Check(line) == nil }

// fileOf says which session a file belongs to: by its name, else by the first of its lines
// that says so.
func (in *Ingester) fileOf(f tail.File, list []line) (agents.File, bool) {
	agent := in.sources[f.Root].Agent
	if known, ok := in.files[keyOf(f)]; ok {
		return known, true
	}
	if is, ok := agent.File(f.Rel, nil); ok {
		return is, true
	}
	for i := range list {
		if is, ok := agent.File(f.Rel, list[i].body); ok {
			in.files[keyOf(f)] = is
			return is, true
		}
	}
	return agents.File{}, false
}

// ownerKey stands for a file of a session, wherever it lies.
func ownerKey(f agents.File) sum { return sumOf(f.Session + "\x00" + f.Stem) }

// owner returns the root in which a file lies, "" if that is not known yet.
func (in *Ingester) owner(f agents.File) string { return in.owners[ownerKey(f)] }

// lines appends the lines of a batch that are not in the log.
func (in *Ingester) lines(ctx context.Context, b *tail.Batch, force bool) error {
	list := in.linesOf(b.Lines)
	is, ok := in.fileOf(b.File, list)
	if !ok {
		if len(list) > 0 {
			in.once(Problem{Root: b.File.Root, File: b.File.Rel, Reason: "does not say which session it is of: left out"})
		}
		return nil
	}
	w, err := in.writer(ctx, in.sources[b.File.Root].Agent, is.Session, force)
	if err != nil {
		return err
	}
	return w.end(w.batch(b, is, list))
}

func (w *writer) batch(b *tail.Batch, is agents.File, list []line) error {
	f := w.s.file(is)
	if owner := w.in.owner(is); owner != "" && owner != b.File.Root {
		w.in.once(Problem{Root: b.File.Root, File: b.File.Rel, Session: is.Session, Reason: "another folder has a file of this session with this name: left out"})
		return nil
	}
	f.root = b.File.Root
	w.in.owners[ownerKey(is)] = f.root
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
	w.in.due[keyOf(b.File)] = w.in.o.now().Add(w.in.o.Quiet)
	return w.shelved(f)
}

// owed appends what a crash kept from being appended behind the last line.
func (w *writer) owed(f *file) error {
	owed := f.follow
	f.follow = nil
	for _, n := range owed {
		if err := w.fact(f, n); err != nil {
			return err
		}
	}
	return nil
}

// line appends what of a line is not in the log. rest are the lines from it on.
func (w *writer) line(f *file, l *line, rest []line) error {
	at := l.Start
	i := sort.Search(len(f.lines), func(i int) bool { return f.lines[i].End > at })
	for ; i < len(f.lines) && at < l.End; i++ {
		if p := &f.lines[i]; p.Start != at || !p.isIn(l) {
			return w.replace(f, i)
		}
		at = f.lines[i].End
	}
	switch {
	case at >= l.End:
		return nil
	case at > f.end():
		w.in.once(Problem{Root: f.root, File: f.Name, Session: f.Session, Offset: f.end(),
			Reason: fmt.Sprintf("%d bytes are not in the log, and were read before: lose the state to have them read again", at-f.end())})
	}
	left, ok := l.from(at)
	if !ok { // it goes on where the log has an end
		return w.replace(f, i-1)
	}
	return w.fresh(f, &left, rest)
}

// fresh appends a line that is not in the log, and what follows from it.
func (w *writer) fresh(f *file, l *line, rest []line) error {
	m := f.tell(f.id(l.at()), l)
	id := f.lastID
	if m.ID != "" && len(m.ID) <= events.MaxIDLen && clean(m.ID) == m.ID {
		if at, ok := w.s.unplaced[sumOf(m.ID)]; ok { // somebody else had it from the agent itself
			delete(w.s.unplaced, sumOf(m.ID))
			f.lines = append(f.lines, l.place(at))
			f.follow = nil
			return nil
		}
		if !w.s.has(m.ID) {
			id = m.ID
		}
	}
	if brokenIDs {
		id = events.DerivedID(string(l.body))
	}
	f.lastID = id
	for i := range f.follow {
		f.follow[i].id = idOf(id + "/" + f.follow[i].Key)
	}
	for _, fact := range m.Before {
		n := following{idOf(id + "/" + fact.Key), m.Time, fact, sumOf(l.body)}
		if created, ok := fact.Payload.(*events.SessionCreated); ok && created.CreatedAt == "" && n.Time.IsZero() && n.time.IsZero() {
			n.time = w.began(f, rest)
		}
		if err := w.fact(f, n); err != nil {
			return err
		}
	}
	if err := w.turn(f, l, id, m); err != nil {
		return err
	}
	return w.owed(f)
}

// began returns the first time that the lines of a file say, else that of the log's clock.
func (w *writer) began(f *file, rest []line) time.Time {
	fold := w.s.agent.Fold(f.File)
	for i := range rest {
		if at := timeOf(fold.Line(rest[i].Span, rest[i].body).Time); !at.IsZero() {
			return at
		}
	}
	return w.in.o.Log.Now()
}

// turn appends a line itself.
func (w *writer) turn(f *file, l *line, id string, m agents.Meaning) error {
	entry, err := l.entry(m)
	if err != nil {
		return err
	}
	e, err := events.New(sourceLines+w.s.agent.Name(), w.s.sub, &events.TurnAppended{Entries: []events.Entry{entry}})
	if err != nil {
		return err
	}
	e.ID, e.Time = id, timeOf(m.Time)
	e = e.WithExtension(extLine, spell(f.Name, l.Span))
	if brokenIDs && w.s.has(id) {
		return nil
	}
	if err := w.event(e); err != nil {
		return err
	}
	w.lines = append(w.lines, written{len(w.series) - 1, f, len(f.lines)})
	f.lines = append(f.lines, l.place(0))
	w.in.count(func(s *Status) { s.Redacted += l.redacted })
	return nil
}

// resume tells the tailer how far the log has a file, so that nothing is lost if it does
// not know any more.
func (in *Ingester) resume(t tail.File) (tail.Position, bool) {
	agent := in.sources[t.Root].Agent
	is, ok := agent.File(t.Rel, nil)
	if !ok {
		return tail.Position{}, false
	}
	s, err := in.session(context.Background(), agent, is.Session)
	if err != nil { // it is read from the beginning, which costs time and nothing else
		return tail.Position{}, false
	}
	f := s.files[is.Stem]
	if owner := in.owner(is); f == nil || len(f.lines) == 0 || owner != "" && owner != t.Root {
		return tail.Position{}, false
	}
	in.resumed(keyOf(t), s, f)
	return tail.Position{Offset: f.end(), Before: bytes.Clone(f.text)}, true
}

// resumed has a file asked what follows from that nothing comes to it, if that is not in the
// log. Its last line may owe something too.
func (in *Ingester) resumed(key fileKey, s *session, f *file) {
	now := in.o.now()
	if in.o.Once || now.Sub(f.time) >= in.o.Quiet {
		f.follow = slices.DeleteFunc(append(f.follow, f.hush()...), func(n following) bool { return s.has(n.id) })
	}
	if !f.quiet {
		in.due[key] = now.Add(in.o.Quiet)
	} else if len(f.follow) > 0 {
		in.due[key] = now
	}
}

package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// Sources of events.
const (
	sourceLines   = events.AgentSource   // with the agent's name: its lines
	sourceDerived = events.DerivedSource // with the agent's name: derived events
)

// sessionState is the log's state of a session, as far as appends of lines need it.
type sessionState struct {
	sub         events.Subject
	agent       agents.Agent
	first, last events.Offset // of its records
	created     bool
	fork        *events.Fork
	archived    bool
	gone        bool
	title       string // as derived from lines
	ids         map[textSum]struct{}
	withoutFile map[textSum]events.Offset // lines that did not come from a file
	files       map[string]*fileState     // by stem
	others      []string                  // sessions with lines of its files
	owners      map[string]bool           // sessions whose files have lines in this one
	live        map[string]int            // number of turns in effect, by thread; nil: not counted
	blurred     events.Offset             // first record from which the offsets of lines are unknown; 0: all are known
}

// fileState is the log's state of a file of a session.
type fileState struct {
	agents.File
	root    string // its root
	called  string // its last name in the log
	gen     int
	lines   []storedLine
	past    map[textSum]bool // removed lines of older generations
	fold    agents.Fold
	isOld   bool // the fold is not at the last line
	lastID  string
	lastAt  time.Time // newest time of a line
	beganAt time.Time // its first time, or when the file was found; zero: not determined
	text    []byte    // end of the last line; nil: unknown
	quiet   bool      // silence after the last line was delivered
	erased  bool      // a line lost its content, so the fold lacks what it said
	follow  []following
}

// following is an event derived from the last line.
type following struct {
	session string // its session; "": the file's
	id      string
	time    time.Time
	agents.Fact
	sum textSum // of the line
}

func newSession(agent agents.Agent, sub events.Subject) *sessionState {
	return &sessionState{sub: sub, agent: agent, ids: make(map[textSum]struct{}), withoutFile: make(map[textSum]events.Offset),
		files:  make(map[string]*fileState),
		owners: make(map[string]bool)}
}

// has reports whether the session has an event of the agent with this id.
func (s *sessionState) has(id string) bool {
	_, ok := s.ids[sumOf(id)]
	return ok
}

// end returns how far the log has the file.
func (f *fileState) end() int64 {
	if len(f.lines) == 0 {
		return 0
	}
	return f.lines[len(f.lines)-1].End
}

// id returns the id of the line whose body begins at an offset.
func (f *fileState) id(at int64) string {
	g := ""
	if f.gen > 0 {
		g = "#" + strconv.Itoa(f.gen)
	}
	return idOf(f.Stem + g + "@" + strconv.FormatInt(at, 10))
}

// file returns a file of the session, under its current name.
func (s *sessionState) file(f agents.File) *fileState {
	have := s.files[f.Stem]
	if have == nil {
		have = &fileState{File: f, fold: s.agent.Fold(f), past: make(map[textSum]bool)}
		s.files[f.Stem] = have
	}
	have.File = f
	return have
}

// newest returns the most recently started file of the session's own messages.
func (s *sessionState) newest() (last *fileState) {
	for _, f := range s.files {
		if f.Thread == agents.Main && (last == nil || f.Stem > last.Stem) {
			last = f
		}
	}
	return last
}

// load reads a session. With fed, it feeds the lines to the folds of its files.
func load(ctx context.Context, src Reader, agent agents.Agent, sub events.Subject, fed bool) (*sessionState, error) {
	s := newSession(agent, sub)
	err := each(ctx, src, s.subjects(), func(rec events.Record) { s.note(rec, fed) })
	if err == nil && len(s.others) > 0 { // again, with their lines in between
		list := s.subjects()
		s = newSession(agent, sub)
		err = each(ctx, src, list, func(rec events.Record) { s.note(rec, fed) })
	}
	if err != nil || !fed {
		return s, err
	}
	for _, f := range s.files {
		if f.isOld {
			err = errors.Join(err, s.refold(ctx, src, f))
		}
		f.follow = slices.DeleteFunc(f.follow, func(n following) bool { return s.has(n.id) })
		if f.erased { // the facts of its lines are in the log, and the fold would derive others
			f.follow, f.quiet = nil, true
		}
	}
	return s, err
}

// subjects returns the session and the other sessions with lines of its files.
func (s *sessionState) subjects() []events.Subject {
	list := []events.Subject{s.sub}
	for _, id := range s.others {
		list = append(list, events.Session(s.sub.Namespace, id))
	}
	return list
}

// each reads the readable records of sessions, in log order.
func each(ctx context.Context, src Reader, subs []events.Subject, visit func(events.Record)) error {
	return merged(ctx, src, subs, 0, 0, func(rec events.Record) bool { visit(rec); return true })
}

// merged reads the records of sessions between two offsets, until visit returns false.
func merged(ctx context.Context, src Reader, subs []events.Subject, after, upto events.Offset, visit func(events.Record) bool) error {
	if len(subs) == 1 {
		for rec, err := range readable(ctx, src, events.Range{Subject: subs[0], After: after, Upto: upto}) {
			if err != nil {
				return err
			}
			if !visit(rec) {
				break
			}
		}
		return nil
	}
	heads := make([]*recordHead, 0, len(subs))
	defer func() {
		for _, h := range heads {
			h.stop()
		}
	}()
	for _, sub := range subs {
		h := &recordHead{}
		h.next, h.stop = iter.Pull2(readable(ctx, src, events.Range{Subject: sub, After: after, Upto: upto}))
		heads = append(heads, h)
		if err := h.advance(); err != nil {
			return err
		}
	}
	for {
		var first *recordHead
		for _, h := range heads {
			if h.ok && (first == nil || h.rec.Offset < first.rec.Offset) {
				first = h
			}
		}
		if first == nil || !visit(first.rec) {
			return nil
		}
		if err := first.advance(); err != nil {
			return err
		}
	}
}

// recordHead is the next record of a session.
type recordHead struct {
	next func() (events.Record, error, bool)
	stop func()
	rec  events.Record
	ok   bool
}

func (h *recordHead) advance() (err error) {
	h.rec, err, h.ok = h.next()
	return err
}

// readable reads records with resolved data, and skips damaged ones.
func readable(ctx context.Context, src Reader, r events.Range) iter.Seq2[events.Record, error] {
	return events.Readable(func(yield func(events.Record, error) bool) {
		for rec, err := range src.Read(ctx, r) {
			if err == nil {
				rec, err = projector.Resolve(ctx, src, rec, events.MaxValue)
			}
			if !yield(rec, err) {
				return
			}
		}
	})
}

// note folds a record of the session.
func (s *sessionState) note(rec events.Record, fed bool) {
	if rec.Subject.ID != s.sub.ID {
		s.noteOther(rec, fed)
		return
	}
	if s.first == 0 {
		s.first = rec.Offset
	}
	s.last = rec.Offset
	if rec.Type == events.TypeSessionCreated && !s.created {
		p, err := events.DecodeAs[events.SessionCreated](rec.Event)
		s.created = err == nil
		if s.created {
			s.fork = p.Fork
		}
	}
	switch rec.Source {
	case sourceLines + s.agent.Name():
		s.ids[sumOf(rec.ID)] = struct{}{}
		s.noteLine(rec, fed)
	case sourceDerived + s.agent.Name():
		s.ids[sumOf(rec.ID)] = struct{}{}
		s.noteFact(rec, fed)
	}
}

// noteOther folds a record of another session with lines of this one's files.
func (s *sessionState) noteOther(rec events.Record, fed bool) {
	switch rec.Source {
	case sourceLines + s.agent.Name():
		if rec.Extensions[extOwner] == escapeName(s.sub.ID) {
			s.ids[sumOf(rec.ID)] = struct{}{}
			s.noteLine(rec, fed)
		}
	case sourceDerived + s.agent.Name():
		s.ids[sumOf(rec.ID)] = struct{}{}
		s.noteQuiet(rec, fed)
	}
}

func (s *sessionState) noteLine(rec events.Record, fed bool) {
	name, at, ok := parse(rec.Extensions[extLine])
	if !ok {
		s.withoutFile[sumOf(rec.ID)] = rec.Offset
		return
	}
	if owner := rec.Extensions[extOwner]; owner != "" && rec.Subject.ID == s.sub.ID {
		s.owners[owner] = true
		return
	}
	l, ok := lineIn(rec, at)
	f := s.fileOf(name, rec.ID, &l)
	if !ok || f == nil {
		return
	}
	p := l.storedAt(rec.Offset)
	if rec.Subject.ID != s.sub.ID {
		p.session = rec.Subject.ID
	}
	f.lines, f.called, f.erased = append(f.lines, p), name, f.erased || l.isErased
	switch {
	case !fed:
	case f.isOld: // fed later
		f.lastID, f.text = rec.ID, f.textOf(&l)
	default:
		f.tell(rec.ID, &l)
	}
}

// lineIn decodes the line in a record.
func lineIn(rec events.Record, at agents.Span) (lineParts, bool) {
	p, err := events.DecodeAs[events.TurnAppended](rec.Event)
	if err != nil || len(p.Entries) != 1 {
		return lineParts{}, false
	}
	l, err := decodeLine(p.Entries[0], at)
	l.isErased = rec.Erased() != ""
	return l, err == nil
}

// fileOf returns the file of a line, or nil if the agent does not know it. The body of an erased line says nothing about
// its file. Its name is sufficient, because the session is the one that has the line; if the agent does not know such
// names, the id of the line is.
func (s *sessionState) fileOf(name, id string, l *lineParts) *fileState {
	if !l.isErased {
		return s.named(name, l.body)
	}
	f, _ := s.agent.File(name, nil) // false if only the lines name the session
	if f.Stem == "" {
		f = agents.File{Name: name, Stem: stemIn(id), Thread: agents.Main}
		if have := s.files[f.Stem]; have != nil {
			return have
		}
	}
	if f.Stem == "" {
		return s.named(name, nil)
	}
	f.Session = s.sub.ID
	return s.file(f)
}

// stemIn returns the stem of the file whose line has an id, or "". See fileState.id.
func stemIn(id string) string {
	at := strings.LastIndexByte(id, '@')
	if at < 0 {
		return "" // it is derived, because it was too long
	}
	stem := id[:at]
	if n := strings.LastIndexByte(stem, '#'); n > 0 {
		if _, err := strconv.Atoi(stem[n+1:]); err == nil { // the generation
			return stem[:n]
		}
	}
	return stem
}

// named returns the file that a line names, or nil if the agent does not know it. If the name alone is not sufficient,
// the first line of the file identifies it.
func (s *sessionState) named(name string, line []byte) *fileState {
	f, ok := s.agent.File(name, nil)
	if !ok {
		for _, f := range s.files {
			if escapeName(f.Name) == name {
				return f
			}
		}
		if line == nil {
			return s.beside(name)
		}
		if f, ok = agents.Named(s.agent, name, line); !ok {
			return nil
		}
	}
	f.Session = s.sub.ID // the session that has the line, regardless of its content
	return s.file(f)
}

// beside returns the file with this name in another folder: a record without a line names the file before any line is
// stored under its new name. It returns nil if no file matches.
func (s *sessionState) beside(name string) *fileState {
	for _, f := range s.files {
		if had := escapeName(f.Name); path.Base(had) == path.Base(name) && strings.Count(had, "/") == strings.Count(name, "/") {
			return f
		}
	}
	return nil
}

// tell feeds the next line to the fold, and returns its meaning.
func (f *fileState) tell(id string, l *lineParts) agents.Meaning {
	m := f.fold.Line(l.Span, l.body)
	f.lastID, f.quiet, f.follow, f.text = id, false, nil, f.textOf(l)
	if at := timeOf(m.Time); at.After(f.lastAt) {
		f.lastAt = at
	}
	for _, fact := range m.After {
		f.follow = append(f.follow, following{m.Session, idOf(id + "/" + fact.Key), m.Time, fact, sumOf(l.body)})
	}
	return m
}

// textOf returns the end of a line for comparison with the file.
func (f *fileState) textOf(l *lineParts) []byte {
	if l.redacted > 0 || l.isErased {
		return nil
	}
	text := append(append([]byte{}, l.body[max(0, len(l.body)-maxText):]...), l.eol...)
	return text
}

// maxText is the number of bytes of the last line that are kept.
const maxText = 1 << 10

// hush delivers silence to the fold.
func (f *fileState) hush() (list []following) {
	if f.quiet || f.lastID == "" {
		return nil
	}
	f.quiet = true
	for _, fact := range f.fold.Quiet() {
		list = append(list, following{"", idOf(f.lastID + quietly + strings.TrimPrefix(fact.Key, quietly[1:])), f.lastAt, fact, textSum{}})
	}
	return list
}

// quietly is a part of the ids of events derived from the silence after a line.
const quietly = "/quiet/"

func (s *sessionState) noteFact(rec events.Record, fed bool) {
	switch rec.Type {
	case events.TypeSessionUpdated:
		if p, err := events.DecodeAs[events.SessionUpdated](rec.Event); err == nil {
			s.noteFields(p.Set)
		}
		if name, _, ok := parse(rec.Extensions[extLine]); ok {
			if f := s.named(name, nil); f != nil {
				f.called = name
			}
		}
	case events.TypeThreadReplaced:
		name, at, ok := parse(rec.Extensions[extLine])
		if f := s.named(name, nil); ok && f != nil {
			f.cut(at.Start)
		}
	}
	s.noteQuiet(rec, fed)
}

// noteQuiet notes that silence was delivered to a file.
func (s *sessionState) noteQuiet(rec events.Record, fed bool) {
	if fed && strings.Contains(rec.ID, quietly) {
		for _, f := range s.files {
			if !f.isOld && f.lastID != "" && strings.HasPrefix(rec.ID, f.lastID+quietly) {
				f.follow = append(f.follow, f.hush()...)
			}
		}
	}
}

func (s *sessionState) noteFields(set events.Fields) {
	for _, field := range set {
		switch field.Name {
		case fieldStatus:
			s.archived = string(field.Value) == archived
		case fieldTitle:
			s.title, _ = rawjson.String(field.Value) // null removes it
		case fieldGone:
			s.gone = string(field.Value) == "true"
		case fieldSessions:
			s.others = nil
			if err := json.Unmarshal(field.Value, &s.others); err != nil {
				s.others = nil // set by another program
			}
		}
	}
}

// cut starts a generation that keeps the lines up to a position.
func (f *fileState) cut(end int64) {
	n := len(f.lines)
	for n > 0 && f.lines[n-1].End > end {
		n--
		f.past[f.lines[n].sum] = true
	}
	f.lines = f.lines[:n]
	f.gen++
	f.isOld, f.follow, f.text, f.lastID = true, nil, nil, ""
}

// refold restarts the fold of a file with the effective lines.
func (s *sessionState) refold(ctx context.Context, src Reader, f *fileState) error {
	f.fold, f.isOld = s.agent.Fold(f.File), false
	next := 0
	return each(ctx, src, s.subjects(), func(rec events.Record) {
		if next < len(f.lines) && f.lines[next].at == rec.Offset {
			next++
			if l, ok := lineIn(rec, f.lines[next-1].Span); ok {
				f.tell(rec.ID, &l)
			}
			return
		}
		if f.lastID != "" && rec.Source == sourceDerived+s.agent.Name() && strings.HasPrefix(rec.ID, f.lastID+quietly) {
			f.follow = append(f.follow, f.hush()...)
		}
	})
}

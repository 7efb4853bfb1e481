package ingest

import (
	"context"
	"slices"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/ingest/tail"
	"github.com/tallylog/tally/projector"
)

// Fields that describe the state of a session's file.
const (
	fieldStatus = "status"
	fieldGone   = "sourceGone"
	fieldCWD    = "cwd"

	fieldSessions = "sessions" // other sessions that have lines of its files
	archived      = `"archived"`
)

// reasonSource is the reason of events that follow a change of the source.
const reasonSource = "source"

// rewritten notes how far the new content of a file was read. At its end, it removes stored lines that the file no
// longer has.
func (w *writer) rewritten(f *fileState, b *tail.Batch, list []lineParts) error {
	if b.Kind != tail.Rewritten {
		return nil
	}
	end := w.in.readTo(b, list)
	if !b.Last {
		return nil
	}
	for i := range f.lines {
		if f.lines[i].End > end {
			return w.replace(f, i)
		}
	}
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	delete(w.in.rewrite, keyOf(b.File))
	return nil
}

// readTo notes and returns how far the new content of a file was read.
func (in *Ingester) readTo(b *tail.Batch, list []lineParts) int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	key := keyOf(b.File)
	if b.First {
		delete(in.rewrite, key)
	}
	if len(list) > 0 {
		in.rewrite[key] = list[len(list)-1].End
	}
	return in.rewrite[key]
}

// replace starts a generation of a file that keeps its first n lines. It keeps none if one of them is not in effect, or
// if a later line did more than add turns. The session is read again afterwards.
func (w *writer) replace(f *fileState, n int) error {
	if err := w.to(f, ""); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.own.focus(w.ctx, w.in.o.Log); err != nil {
		return err
	}
	made, err := w.made(f)
	if err != nil {
		return err
	}
	threads := make(map[string]projector.Threads)
	for _, sub := range w.own.subjects() {
		s, err := (&projector.Loader{Source: w.in.o.Log}).Session(w.ctx, sub, 0)
		if err != nil {
			return err
		}
		threads[sub.ID] = s.Threads
	}
	if made.replaces(n) || !areLive(threads, f.lines[:n]) {
		n = 0
	}
	away := made.from(n)
	for i := range f.lines[n:] {
		away[f.lines[n+i].at] = true
	}
	return w.generation(f, n, threads, away)
}

// generation removes turns in all sessions with lines of a file, last in its own: that event starts the generation.
func (w *writer) generation(f *fileState, n int, threads map[string]projector.Threads, away map[events.Offset]bool) error {
	for i, id := range append(slices.Clone(w.own.others), "") {
		if err := w.to(f, id); err != nil {
			return err
		}
		e, changed, err := w.taken(f, n, threads[w.s.sub.ID], away)
		if err != nil {
			return err
		}
		if i < len(w.own.others) {
			e.ID = idOf(e.ID + "/" + id)
		}
		if !changed && i < len(w.own.others) || w.s.has(e.ID) {
			continue
		}
		if err := w.event(e); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	w.in.report(Problem{Root: f.root, File: f.Name, Session: f.Session, Offset: w.kept(f, n),
		Reason: "was rewritten: its old content stays readable in the log", Taken: true})
	return errAgain
}

// kept returns the end of the kept lines.
func (w *writer) kept(f *fileState, n int) int64 {
	if n == 0 {
		return 0
	}
	return f.lines[n-1].End
}

// areLive reports whether all lines are in effect.
func areLive(threads map[string]projector.Threads, lines []storedLine) bool {
	live := make(map[events.Offset]bool)
	for _, of := range threads {
		for name := range of {
			for _, t := range of.Turns(name) {
				live[t.Offset] = true
			}
		}
	}
	for i := range lines {
		if !live[lines[i].at] {
			return false
		}
	}
	return true
}

// derivedEvents lists the derived events that added or replaced turns of a file.
type derivedEvents []derivedEvent

type derivedEvent struct {
	line     int // the line that it was derived from
	at       events.Offset
	replaces bool
}

// made returns the turns derived from the lines of a file.
func (w *writer) made(f *fileState) (list derivedEvents, err error) {
	byAt := make(map[events.Offset]int, len(f.lines))
	for i := range f.lines {
		byAt[f.lines[i].at] = i
	}
	lines := make(map[string]int, len(f.lines)) // by id
	var facts []events.Record
	err = each(w.ctx, w.in.o.Log, w.own.subjects(), func(rec events.Record) {
		if i, ok := byAt[rec.Offset]; ok {
			lines[rec.ID] = i
		}
		if rec.Source == sourceDerived+w.own.agent.Name() && (rec.Type == events.TypeTurnAppended || rec.Type == events.TypeThreadReplaced) {
			rec.Data = nil
			facts = append(facts, rec)
		}
	})
	for _, rec := range facts {
		for end := len(rec.ID) - 1; end > 0; end-- {
			if i, ok := lines[rec.ID[:end]]; ok && rec.ID[end] == '/' {
				list = append(list, derivedEvent{i, rec.Offset, rec.Type == events.TypeThreadReplaced})
				break
			}
		}
	}
	return list, err
}

// replaces reports whether line n or a later one replaced turns.
func (m derivedEvents) replaces(n int) bool {
	for _, e := range m {
		if e.line >= n && e.replaces {
			return true
		}
	}
	return false
}

// from returns the events derived from line n and later ones.
func (m derivedEvents) from(n int) map[events.Offset]bool {
	away := make(map[events.Offset]bool)
	for _, e := range m {
		if e.line >= n {
			away[e.at] = true
		}
	}
	return away
}

// taken returns the event that removes turns of a file from the current session, and whether there are any.
func (w *writer) taken(f *fileState, n int, threads projector.Threads, away map[events.Offset]bool) (e events.Event, changed bool, err error) {
	p := &events.ThreadReplaced{Threads: make(map[string]events.Replacement), Others: "keep", Reason: reasonSource}
	for name := range threads {
		if r, isOther := without(threads.Turns(name), away); isOther {
			p.Threads[name] = r
			changed = true
		}
	}
	e, err = events.New(sourceDerived+w.own.agent.Name(), w.s.sub, p)
	end := w.kept(f, n)
	e.Time = f.lastAt // editing a file is not an activity of the session
	e.ID = idOf(f.Stem + "#" + strconv.Itoa(f.gen+1) + "@" + strconv.FormatInt(end, 10) + "/replaced")
	if w.s == w.own {
		e = e.WithExtension(extLine, spell(f.Name, agents.Span{Start: end, End: end}))
	}
	return e, changed, err
}

// without returns a replacement that keeps the turns of a thread, except those of the events in away.
func without(turns []projector.Turn, away map[events.Offset]bool) (r events.Replacement, changed bool) {
	for i, t := range turns {
		last := len(r.Items) - 1
		switch {
		case away[t.Offset]:
			changed = true
		case last >= 0 && r.Items[last].Keep[1] == i:
			r.Items[last].Keep[1] = i + 1
		default:
			r.Items = append(r.Items, events.Item{Keep: &[2]int{i, i + 1}})
		}
	}
	return r, changed
}

// shelved updates the session after its file moved. Status and source follow the newest existing file, and the log gets
// the current name of each file.
func (w *writer) shelved(f *fileState) error {
	if len(f.lines) == 0 || w.own.isShelved(f, f.File) {
		return nil
	}
	set := events.Fields{}
	if f == w.own.newest() && w.own.created {
		if w.own.archived != f.Archived {
			status := `"open"`
			if f.Archived {
				status = archived
			}
			set = append(set, events.Field{Name: fieldStatus, Value: events.Raw(status)})
		}
		if w.own.gone {
			set = append(set, events.Field{Name: fieldGone, Value: events.Raw("null")})
		}
	}
	return w.update(f, set)
}

// isShelved reports whether the log has the current name of a file and the state that follows from its location.
func (s *sessionState) isShelved(f *fileState, now agents.File) bool {
	return f.called == escapeName(now.Name) && (f != s.newest() || !s.created || s.archived == now.Archived && !s.gone)
}

// update sets fields of the session, and records the file's name if it is new.
func (w *writer) update(f *fileState, set events.Fields) error {
	if err := w.to(f, ""); err != nil {
		return err
	}
	if err := w.flush(); err != nil { // the id depends on the previous record
		return err
	}
	e, err := events.New(sourceDerived+w.s.agent.Name(), w.s.sub, &events.SessionUpdated{Set: set, Reason: reasonSource})
	if err != nil {
		return err
	}
	e.ID, e.Time = idOf(f.Stem+"/source@"+strconv.FormatUint(uint64(w.s.last), 10)), f.lastAt // the time of the change is unknown, but not earlier
	w.s.noteFields(set)
	if name := escapeName(f.Name); len(f.lines) > 0 && f.called != name {
		e = e.WithExtension(extLine, spell(f.Name, agents.Span{Start: f.end(), End: f.end()}))
		f.called = name
	}
	return w.event(e)
}

// follows reports whether a file is the same one under a new name. If the new name implies another session, it is not.
func (in *Ingester) follows(from, to tail.File, head func() []byte) bool {
	agent := in.sources[to.Root].Agent
	if in.sources[from.Root].Agent.Name() != agent.Name() {
		return false
	}
	first := head()
	was, isOf := agent.File(from.Rel, first)
	is, ok := agent.File(to.Rel, first)
	return isOf && ok && was.Session == is.Session && was.Stem == is.Stem
}

// moved updates a session whose file was moved.
func (in *Ingester) moved(ctx context.Context, b *tail.Batch) error {
	is, ok := in.fileOf(b.File, nil)
	if !ok {
		return nil
	}
	w, err := in.writer(ctx, in.sources[b.File.Root].Agent, is.Session, false)
	if err != nil {
		return err
	}
	have := w.own.files[is.Stem]
	if have == nil || !in.isMovedTo(is, keyOf(b.From), keyOf(b.File), have) { // none of it was stored
		return w.end(nil)
	}
	f := w.own.file(is)
	f.root = b.File.Root
	if old := keyOf(b.From); old != keyOf(b.File) {
		in.release(old)
		in.forgetDue(old)
	}
	in.mu.Lock()
	delete(in.files, keyOf(b.From))
	in.mu.Unlock()
	in.isDueIn(keyOf(b.File), in.o.Quiet)
	return w.end(w.shelved(f))
}

// vanished records that the source of a session is gone.
func (in *Ingester) vanished(ctx context.Context, b *tail.Batch) error {
	is, ok := in.fileOf(b.File, b)
	if !ok {
		return nil
	}
	w, err := in.writer(ctx, in.sources[b.File.Root].Agent, is.Session, false)
	if err != nil {
		return err
	}
	f := w.own.files[is.Stem]
	if f == nil || f.called != escapeName(is.Name) { // or it continues under another name
		return w.end(nil)
	}
	in.mu.Lock()
	delete(in.files, keyOf(b.File))
	if in.owners[ownerKey(is)] == keyOf(b.File) {
		delete(in.owners, ownerKey(is))
	}
	in.mu.Unlock()
	if f != w.own.newest() || w.own.gone {
		return w.end(nil)
	}
	return w.end(w.update(f, events.Fields{{Name: fieldGone, Value: events.Raw("true")}}))
}

// hush appends the events that follow from a file's silence. If its session waits for a line that decides its
// namespace, the wait ends.
func (in *Ingester) hush(ctx context.Context, key fileKey, is agents.File) error {
	in.forgetDue(key)
	waited, err := in.decided(ctx, is.Session)
	if err == nil {
		err = in.dealAll(ctx, waited)
	}
	if err != nil {
		return err
	}
	err = in.insist(ctx, func() error { return in.ask(ctx, in.sources[key.root].Agent, is) })
	if err == nil {
		in.release(key)
		in.isSettled(key)
	}
	return err
}

// ask appends the events that a file's fold derives from silence.
func (in *Ingester) ask(ctx context.Context, agent agents.Agent, is agents.File) error {
	if in.isAlone(is.Session) {
		return nil
	}
	w, err := in.writer(ctx, agent, is.Session, false)
	if err != nil {
		return err
	}
	f := w.own.files[is.Stem]
	if f == nil {
		return w.end(nil)
	}
	f.follow = append(f.follow, f.hush()...)
	return w.end(w.owed(f))
}

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

// Fields of a session by which it follows its file.
const (
	fieldStatus = "status"
	fieldGone   = "sourceGone"
	fieldCWD    = "cwd"

	fieldSessions = "sessions" // in which lines of its files stand, beside itself
	archived      = `"archived"`
)

// reasonSource is why something is so: it is where it came from.
const reasonSource = "source"

// rewritten notes how far the new content of a file was read, and at its end takes away
// what the file has no more.
func (w *writer) rewritten(f *file, b *tail.Batch, list []line) error {
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
func (in *Ingester) readTo(b *tail.Batch, list []line) int64 {
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

// replace begins a generation of a file in which its first n lines are kept, as far as they
// are in effect and nothing behind them did more than to add turns. The session is read
// again after it.
func (w *writer) replace(f *file, n int) error {
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

// generation takes away turns in all sessions in which lines of a file stand, its own being
// the last: that is when the generation begins.
func (w *writer) generation(f *file, n int, threads map[string]projector.Threads, away map[events.Offset]bool) error {
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
		Reason: "is not what it was: what was there stays readable in the log", Taken: true})
	return errAgain
}

// kept is where the lines end that are kept.
func (w *writer) kept(f *file, n int) int64 {
	if n == 0 {
		return 0
	}
	return f.lines[n-1].End
}

// areLive reports whether all lines are in effect.
func areLive(threads map[string]projector.Threads, lines []place) bool {
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

// made are the events, beside the lines, that brought turns of a file or replaced some.
type made []fact

type fact struct {
	line     int // that it follows from
	at       events.Offset
	replaces bool
}

// made returns what turns followed from the lines of a file.
func (w *writer) made(f *file) (list made, err error) {
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
				list = append(list, fact{i, rec.Offset, rec.Type == events.TypeThreadReplaced})
				break
			}
		}
	}
	return list, err
}

// replaces reports whether lines from the nth on replaced turns.
func (m made) replaces(n int) bool {
	for _, e := range m {
		if e.line >= n && e.replaces {
			return true
		}
	}
	return false
}

// from returns the events that follow from lines from the nth on.
func (m made) from(n int) map[events.Offset]bool {
	away := make(map[events.Offset]bool)
	for _, e := range m {
		if e.line >= n {
			away[e.at] = true
		}
	}
	return away
}

// taken is the event that takes turns of a file away from the session that is written to, and
// whether there are any.
func (w *writer) taken(f *file, n int, threads projector.Threads, away map[events.Offset]bool) (e events.Event, changed bool, err error) {
	p := &events.ThreadReplaced{Threads: make(map[string]events.Replacement), Others: "keep", Reason: reasonSource}
	for name := range threads {
		if r, isOther := without(threads.Turns(name), away); isOther {
			p.Threads[name] = r
			changed = true
		}
	}
	e, err = events.New(sourceDerived+w.own.agent.Name(), w.s.sub, p)
	end := w.kept(f, n)
	e.Time = f.lastAt // to edit a file is no activity of the session
	e.ID = idOf(f.Stem + "#" + strconv.Itoa(f.gen+1) + "@" + strconv.FormatInt(end, 10) + "/replaced")
	if w.s == w.own {
		e = e.WithExtension(extLine, spell(f.Name, agents.Span{Start: end, End: end}))
	}
	return e, changed, err
}

// without keeps the turns of a thread that no event away brought.
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

// shelved has the session follow a file: what it says of its status and its source is so of
// its newest one, which is there, and the log knows what each is called.
func (w *writer) shelved(f *file) error {
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

// isShelved reports whether the log knows what a file is called now, and what follows from
// that it lies there.
func (s *session) isShelved(f *file, now agents.File) bool {
	return f.called == clean(now.Name) && (f != s.newest() || !s.created || s.archived == now.Archived && !s.gone)
}

// update sets fields of the session, and says what a file is called if the log does not know.
func (w *writer) update(f *file, set events.Fields) error {
	if err := w.to(f, ""); err != nil {
		return err
	}
	if err := w.flush(); err != nil { // the id follows from what was before
		return err
	}
	e, err := events.New(sourceDerived+w.s.agent.Name(), w.s.sub, &events.SessionUpdated{Set: set, Reason: reasonSource})
	if err != nil {
		return err
	}
	e.ID, e.Time = idOf(f.Stem+"/source@"+strconv.FormatUint(uint64(w.s.last), 10)), f.lastAt // when it came to be so nobody says: no earlier
	w.s.noteFields(set)
	if name := clean(f.Name); len(f.lines) > 0 && f.called != name {
		e = e.WithExtension(extLine, spell(f.Name, agents.Span{Start: f.end(), End: f.end()}))
		f.called = name
	}
	return w.event(e)
}

// follows reports whether a file is the same one under a new name: one that names another
// session is that one's.
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

// moved has a session follow its file to another name.
func (in *Ingester) moved(ctx context.Context, b *tail.Batch) error {
	is, ok := in.fileOf(b.File, nil)
	if !ok {
		return nil
	}
	w, err := in.writer(ctx, in.sources[b.File.Root].Agent, is.Session, false)
	if err != nil {
		return err
	}
	if w.own.files[is.Stem] == nil { // nothing of it was stored
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
	in.owners[ownerKey(is)] = f.root
	in.mu.Unlock()
	in.isDueIn(keyOf(b.File), in.o.Quiet)
	return w.end(w.shelved(f))
}

// vanished notes that the source of a session is gone.
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
	if f == nil || f.called != clean(is.Name) { // or it goes on under another name
		return w.end(nil)
	}
	in.mu.Lock()
	delete(in.files, keyOf(b.File))
	if in.owners[ownerKey(is)] == b.File.Root {
		delete(in.owners, ownerKey(is))
	}
	in.mu.Unlock()
	if f != w.own.newest() || w.own.gone {
		return w.end(nil)
	}
	return w.end(w.update(f, events.Fields{{Name: fieldGone, Value: events.Raw("true")}}))
}

// hush appends what follows from that nothing came to a file for a while: if its session
// waits for a line that says where it goes, none comes.
func (in *Ingester) hush(ctx context.Context, key fileKey, is agents.File) error {
	in.forgetDue(key)
	waited, err := in.decided(ctx, is.Session)
	if err == nil {
		err = in.dealAll(ctx, waited)
	}
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		err := in.ask(ctx, in.sources[key.root].Agent, is)
		switch {
		case err == nil:
			in.release(key)
			in.isSettled(key)
			return nil
		case ctx.Err() != nil || !isRace(err) || attempt == maxTries:
			return err
		}
		pause(ctx, attempt)
	}
}

// ask appends what a file says of that nothing came.
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

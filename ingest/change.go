package ingest

import (
	"context"
	"errors"
	"strconv"

	"github.com/tallylog/tally/agents"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/tail"
	"github.com/tallylog/tally/projector"
)

// Fields of a session by which it follows its file.
const (
	fieldStatus = "status"
	fieldGone   = "sourceGone"
	archived    = `"archived"`
)

// reasonSource is why something is so: it is where it came from.
const reasonSource = "source"

// rewritten notes how far the new content of a file was read, and at its end takes away
// what the file has no more.
func (w *writer) rewritten(f *file, b *tail.Batch, list []line) error {
	key := keyOf(b.File)
	if b.Kind != tail.Rewritten {
		return nil
	}
	if b.First {
		delete(w.in.rewrite, key)
	}
	if len(list) > 0 {
		w.in.rewrite[key] = list[len(list)-1].End
	}
	if !b.Last {
		return nil
	}
	end := w.in.rewrite[key]
	delete(w.in.rewrite, key)
	for i := range f.lines {
		if f.lines[i].End > end {
			w.in.rewrite[key] = end // it is asked again
			return w.replace(f, i)
		}
	}
	return nil
}

// replace begins a generation of a file in which its first n lines are kept, as far as they
// are in effect. The session is read again after it.
func (w *writer) replace(f *file, n int) error {
	if err := w.flush(); err != nil {
		return err
	}
	s, err := (&projector.Loader{Source: w.in.o.Log}).Session(w.ctx, w.s.sub, 0)
	if err != nil {
		return err
	}
	if !areLive(s.Threads, f.lines[:n]) {
		n = 0
	}
	e, err := w.generation(f, s.Threads, n)
	if err != nil {
		return err
	}
	if err := w.event(e); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	w.in.report(Problem{Root: f.root, File: f.Name, Session: f.Session, Offset: w.kept(f, n),
		Reason: "is not what it was: what was there stays readable in the log"})
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
func areLive(threads projector.Threads, lines []place) bool {
	live := make(map[events.Offset]bool)
	for name := range threads {
		for _, t := range threads.Turns(name) {
			live[t.Offset] = true
		}
	}
	for i := range lines {
		if !live[lines[i].at] {
			return false
		}
	}
	return true
}

// generation is the event that takes away all lines of a file but the first ones.
func (w *writer) generation(f *file, threads projector.Threads, n int) (events.Event, error) {
	away := make(map[events.Offset]bool)
	for i := range f.lines[n:] {
		away[f.lines[n+i].at] = true
	}
	p := &events.ThreadReplaced{Threads: make(map[string]events.Replacement), Others: "keep", Reason: reasonSource}
	for name := range threads {
		if r, changed := without(threads.Turns(name), away); changed {
			p.Threads[name] = r
		}
	}
	e, err := events.New(sourceDerived+w.s.agent.Name(), w.s.sub, p)
	end := w.kept(f, n)
	e.ID = idOf(f.Stem + "#" + strconv.Itoa(f.gen+1) + "@" + strconv.FormatInt(end, 10) + "/replaced")
	return e.WithExtension(extLine, spell(f.Name, agents.Span{Start: end, End: end})), err
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

// shelved has the session's status and what it says of its source follow its newest file,
// which is there.
func (w *writer) shelved(f *file) error {
	if f != w.s.newest() || !w.s.created {
		return nil
	}
	var set events.Fields
	if w.s.archived != f.Archived {
		status := `"open"`
		if f.Archived {
			status = archived
		}
		set = append(set, events.Field{Name: fieldStatus, Value: events.Raw(status)})
	}
	if w.s.gone {
		set = append(set, events.Field{Name: fieldGone, Value: events.Raw("null")})
	}
	return w.update(f, set)
}

// update sets fields of the session.
func (w *writer) update(f *file, set events.Fields) error {
	if len(set) == 0 {
		return nil
	}
	if err := w.flush(); err != nil { // the id follows from what was before
		return err
	}
	e, err := events.New(sourceDerived+w.s.agent.Name(), w.s.sub, &events.SessionUpdated{Set: set, Reason: reasonSource})
	if err != nil {
		return err
	}
	e.ID = idOf(f.Stem + "/source@" + strconv.FormatUint(uint64(w.s.last), 10))
	w.s.noteFields(set)
	return w.event(e)
}

// moved has a session follow its file to another name.
func (in *Ingester) moved(ctx context.Context, b *tail.Batch) error {
	from, fromOK := in.fileOf(b.From, nil)
	is, ok := in.fileOf(b.File, nil)
	if fromOK && (!ok || from.Session != is.Session || from.Stem != is.Stem) && b.From.Rel != b.File.Rel {
		in.report(Problem{Root: b.File.Root, File: b.File.Rel, Session: from.Session, Reason: "was " + b.From.Rel + ": goes on as what it was"})
		from.Name = b.File.Rel
		in.files[keyOf(b.File)] = from
		is, ok = from, true
	}
	if !ok {
		return nil
	}
	w, err := in.writer(ctx, in.sources[b.File.Root].Agent, is.Session, false)
	if err != nil {
		return err
	}
	if w.s.files[is.Stem] == nil { // nothing of it was stored
		return nil
	}
	f := w.s.file(is)
	f.root = b.File.Root
	in.owners[ownerKey(is)] = f.root
	if old := keyOf(b.From); old != keyOf(b.File) {
		in.release(old)
		delete(in.due, old)
	}
	in.due[keyOf(b.File)] = in.o.now().Add(in.o.Quiet)
	return w.end(w.shelved(f))
}

// vanished notes that the source of a session is gone.
func (in *Ingester) vanished(ctx context.Context, b *tail.Batch) error {
	is, ok := in.fileOf(b.File, nil)
	if !ok {
		return nil
	}
	delete(in.files, keyOf(b.File))
	w, err := in.writer(ctx, in.sources[b.File.Root].Agent, is.Session, false)
	if err != nil {
		return err
	}
	f := w.s.files[is.Stem]
	if f == nil {
		return nil
	}
	if in.owner(is) == b.File.Root {
		delete(in.owners, ownerKey(is))
	}
	if f != w.s.newest() || w.s.gone {
		return nil
	}
	return w.end(w.update(f, events.Fields{{Name: fieldGone, Value: events.Raw("true")}}))
}

// hush appends what follows from that nothing came to a file for a while.
func (in *Ingester) hush(ctx context.Context, key fileKey) error {
	delete(in.due, key)
	agent := in.sources[key.root].Agent
	is, ok := in.fileOf(tail.File{Root: key.root, Rel: key.rel}, nil)
	if !ok {
		in.release(key)
		return nil
	}
	for try := 0; ; try++ {
		w, err := in.writer(ctx, agent, is.Session, false)
		if err != nil {
			return err
		}
		if f := w.s.files[is.Stem]; f != nil {
			f.follow = append(f.follow, f.hush()...)
			err = w.end(w.owed(f))
		}
		switch {
		case err == nil:
			in.release(key)
			return nil
		case ctx.Err() != nil || !isRace(err) || try == maxTries:
			return err
		}
		pause(ctx, try)
	}
}

// hushAll is hush for all files that something came to.
func (in *Ingester) hushAll(ctx context.Context) (err error) {
	for key := range in.due {
		err = errors.Join(err, in.hush(ctx, key))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

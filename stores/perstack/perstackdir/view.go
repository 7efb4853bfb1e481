package perstackdir

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/foreign"
	"github.com/tallylog/tally/stores/perstack/internal/secret"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// errNoValues says that secrets were left out when a setting was imported.
var errNoValues = errors.New("the store does not have them")

// view renders the files of a job's session.
type view struct {
	src   formats.Source
	s     *projector.Session
	keys  keyring
	known *shown // read before; empty: not yet
}

func newView(src formats.Source, s *projector.Session, keys keyring) view {
	return view{src, s, keys, new(shown)}
}

// shown is what the session's records show: its files, each with the record that has it.
type shown struct {
	files    map[string]*state
	contents map[string]map[string]bool // of the events of one name: the hashes of their raw values
	costs    map[string]bool            // ids of cost.accrued
	moved    bool                       // the threads were not only appended to
}

// state is a file as the session has it.
type state struct {
	part    part
	at      events.Offset
	raw     events.Raw // of a job, and of a setting, with placeholders
	run     string     // of a setting
	touched events.Timestamp
	secrets []byte // the document of a setting's secrets; nil: there is none
	sum     string // of the file as it is rendered; of a setting, with placeholders
	value   string // of the raw value; of a setting, with placeholders
}

// records reads what the session's records show.
func (v view) records(ctx context.Context) (*shown, error) {
	if v.known.files != nil {
		return v.known, nil
	}
	out := &shown{moved: v.s.Ledger.Fork != nil || len(v.s.Ledger.Rewinds) > 0}
	err := v.read(ctx, out)
	if errors.Is(err, errMoved) { // then each record has the threads that it was written on
		out.moved = true
		err = v.read(ctx, out)
	}
	if err == nil {
		*v.known = *out
	}
	return v.known, err
}

// errMoved says that a thread was replaced or cut, so that its turns are not those that
// records before that named.
var errMoved = errors.New("threads were moved")

func (v view) read(ctx context.Context, out *shown) error {
	out.files, out.contents, out.costs = make(map[string]*state), make(map[string]map[string]bool), make(map[string]bool)
	if v.s.Offset() == 0 { // as a bound it would mean no bound
		return nil
	}
	void := make(map[events.Offset]bool, len(v.s.Ledger.Void))
	for _, r := range v.s.Ledger.Void {
		void[r.Offset] = true
	}
	r := reader{v, out, make(map[string]int)}
	for rec, err := range v.src.Loader().Source.Read(ctx, events.Range{Subject: v.s.Subject, Upto: v.s.Offset()}) {
		if _, damaged := errors.AsType[*events.DamageError](err); damaged {
			continue // which the export says
		}
		if err == nil && !void[rec.Offset] {
			err = r.apply(ctx, rec)
		}
		if err != nil {
			return err
		}
	}
	return r.finish()
}

// reader makes the files of the records.
type reader struct {
	view
	out   *shown
	names map[string]int // of the events of one name, how many there are
}

func (r reader) apply(ctx context.Context, rec events.Record) error {
	switch rec.Type {
	case events.TypeThreadReplaced, events.TypeThreadTruncated, events.TypeSessionRewound:
		if !r.out.moved {
			return errMoved
		}
		return nil
	case events.TypeCostAccrued:
		r.out.costs[rec.ID] = true
		return nil
	case events.TypeTurnAppended, events.TypeRunAnnotated, events.TypeThreadPinned:
		return nil
	}
	p, raw, err := r.whole(ctx, r.out.moved, rec)
	if err != nil {
		return err
	}
	switch p := p.(type) {
	case *events.SessionCreated:
		r.job(rec, p.Raw)
	case *events.SessionUpdated:
		r.job(rec, p.Raw)
	case *events.CheckpointSaved:
		if p.Kind == events.CheckpointStep && raw != nil {
			r.add(checkpointPath(p.ID), &state{part: partCheckpoint, at: rec.Offset}, raw)
		}
	case *events.CheckpointCleared:
		r.cleared(p)
	case *events.RunCreated:
		return r.setting(ctx, rec, p)
	case *events.RunStarted, *events.RunProgressed, *events.RunFinished:
		r.event(rec, p, raw)
	}
	return nil
}

func (r reader) job(rec events.Record, raw events.Raw) {
	if raw != nil {
		r.out.files[jobName] = &state{part: partJob, at: rec.Offset, raw: raw}
	}
}

// add notes a file that holds a raw value as it stands.
func (r reader) add(path string, st *state, raw events.Raw) {
	st.value = foreign.SumOf(raw)
	st.sum = st.value
	if f := r.format(path); f.BOM || f.Indent != "" || f.FinalNewline {
		st.sum = foreign.SumOf(foreign.SpellJSON(raw, f))
	}
	r.out.files[path] = st
}

func (r reader) cleared(p *events.CheckpointCleared) {
	for _, c := range r.s.Ledger.Checkpoints {
		if c.Kind == events.CheckpointStep && p.Kind == c.Kind && (p.ID == "" || p.ID == c.ID) {
			delete(r.out.files, checkpointPath(c.ID))
		}
	}
}

// event notes the file of an event. One that was recorded for another purpose has none.
func (r reader) event(rec events.Record, p events.Payload, raw events.Raw) {
	if ref := projector.RunOf(p); raw == nil || ref.Kind != shape.RunKind {
		return
	}
	e, err := shape.ParseEvent(raw)
	if err != nil {
		return
	}
	base := eventPath(e)
	r.names[base]++
	if r.out.contents[base] == nil {
		r.out.contents[base] = make(map[string]bool)
	}
	st := &state{part: partEvent, at: rec.Offset}
	r.add(numbered(base, r.names[base]), st, raw)
	r.out.contents[base][st.value] = true
}

// setting notes the setting of a run: the first counts.
func (r reader) setting(ctx context.Context, rec events.Record, p *events.RunCreated) error {
	run := r.s.Ledger.Run(p.Run)
	if p.Run.Kind != shape.RunKind || p.Setting == nil || run == nil || run.Setting != rec.Offset {
		return nil
	}
	doc := r.secretOf(p.Run.ID)
	st := &state{part: partSetting, at: rec.Offset, raw: p.Setting, run: p.Run.ID, touched: run.TouchedAt}
	d, err := r.src.Loader().Document(ctx, doc, 0)
	if err == nil {
		st.secrets = d.Data
	} else if !errors.Is(err, projector.ErrNotFound) {
		return err
	}
	r.out.files[settingPath(p.Run.ID)] = st
	return nil
}

// finish settles what later records may change.
func (r reader) finish() error {
	for path, st := range r.out.files {
		if st.raw == nil {
			continue
		}
		raw, err := st.current()
		if err != nil {
			return err
		}
		st.value, st.sum = sumOfSetting(raw), foreign.SumOf(foreign.SpellJSON(raw, r.format(path)))
	}
	return nil
}

// current is the raw value as it is now: a setting has the time at which it was touched.
func (st *state) current() (events.Raw, error) {
	if st.part != partSetting {
		return st.raw, nil
	}
	return shape.SettingFile(st.raw, st.touched)
}

// whole returns the payload of a record, and its raw value with its lists put together.
func (v view) whole(ctx context.Context, moved bool, rec events.Record) (events.Payload, events.Raw, error) {
	var err error
	if moved {
		rec, err = v.src.Loader().Whole(ctx, rec)
	} else {
		rec, err = projector.Resolve(ctx, v.src.Loader().Source, rec, foreign.MaxValue(v.src))
	}
	if err != nil {
		return nil, nil, err
	}
	p := projector.Decode(rec).Payload
	raw := rawOf(p)
	if lists := events.ListsOf(p); len(lists) > 0 {
		raw, err = lists.Fill(raw, func(piece events.Piece) ([]events.Raw, error) { return v.piece(piece) })
	}
	return p, raw, err
}

// rawOf is what a payload holds of a file.
func rawOf(p events.Payload) events.Raw {
	if c, ok := p.(*events.CheckpointSaved); ok {
		return c.Raw
	}
	_, raw, _ := shape.RawOf(p)
	return raw
}

// piece returns turns, from threads that were only appended to.
func (v view) piece(p events.Piece) ([]events.Raw, error) {
	turns := v.s.Threads.Turns(p.Thread)
	if p.To > len(turns) {
		return nil, errMoved
	}
	raws := make([]events.Raw, 0, p.To-p.From)
	for _, t := range turns[p.From:p.To] {
		raws = append(raws, t.Raw)
	}
	return raws, nil
}

// format is how a file is spelled, if it is not kept whole: as the original does, unless the
// session says otherwise.
func (v view) format(path string) events.FileFormat {
	if f, ok := v.s.Ledger.Formats[foreign.KeyOf(path)]; ok {
		return f
	}
	f := v.s.Ledger.Formats[everyFile]
	if path == jobName {
		f.Indent = jobIndent
	}
	return f
}

// paths lists the files that the session may have, sorted.
func (v view) paths(ctx context.Context) ([]string, error) {
	out, err := v.records(ctx)
	if err != nil {
		return nil, err
	}
	others := make([]string, 0, len(out.files))
	for name := range out.files {
		others = append(others, name)
	}
	list := foreign.Paths(v.s, others...)
	return slices.DeleteFunc(list, func(name string) bool { return name == everyFile }), nil
}

// file decides where the bytes of a path come from. ok is false if the session has no such
// file.
func (v view) file(ctx context.Context, path string) (o foreign.Output, ok bool, err error) {
	out, err := v.records(ctx)
	if err != nil {
		return o, false, err
	}
	st := out.files[path]
	o, err = foreign.OutputOf(v.src, v.s, path, func(events.FileFormat) (string, error) { return st.rendered(), nil })
	if !o.Known {
		o.Format = v.format(path)
	}
	o.Open = v.keys.file
	if st == nil {
		return o, o.Whole, err
	}
	problem := ""
	o.Render = func(w io.Writer) error { return v.render(ctx, w, st, o.Format) }
	if st.part == partSetting && !o.Whole && !o.Gone {
		_, problem = v.setting(st)
	}
	o.Problem = problem
	return o, o.Whole || !o.Gone, err
}

// rendered is the hash of what the state renders for a file.
func (st *state) rendered() string {
	if st == nil {
		return foreign.Nothing
	}
	return st.sum
}

// render writes a file.
func (v view) render(ctx context.Context, w io.Writer, st *state, f events.FileFormat) error {
	raw, err := v.value(ctx, st)
	if err != nil {
		return err
	}
	return foreign.WriteJSON(w, raw, f)
}

// value returns the raw value of a file, of a setting with its secrets if there is a key.
func (v view) value(ctx context.Context, st *state) (events.Raw, error) {
	switch st.part {
	case partSetting:
		raw, _ := v.setting(st)
		return raw, nil
	case partJob:
		return st.raw, nil
	}
	rec, err := v.src.Loader().Source.Record(ctx, st.at)
	if err != nil {
		return nil, err
	}
	_, raw, err := v.whole(ctx, v.known.moved, rec)
	return raw, err
}

// sumAs is the hash of what the state renders for a file by another format; of a setting,
// with placeholders.
func (v view) sumAs(ctx context.Context, st *state, f events.FileFormat) (string, error) {
	if st == nil {
		return foreign.Nothing, nil
	}
	raw, err := st.current()
	if st.raw == nil {
		raw, err = v.value(ctx, st)
	}
	return foreign.SumOf(foreign.SpellJSON(raw, f)), err
}

// setting returns a run's setting with its secrets, or with placeholders and why.
func (v view) setting(st *state) (events.Raw, string) {
	raw, problem := st.raw, ""
	if _, err := secret.Put(raw, nil); err != nil { // there are placeholders
		raw, problem = v.keys.withSecrets(raw, v.secretOf(st.run), st.secrets)
	}
	touched, err := shape.SettingFile(raw, st.touched) // last: it may leave members out, secrets with them
	if err != nil {
		return raw, err.Error()
	}
	return touched, problem
}

package perstackdir

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/secret"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// errNoValues reports that a setting was imported without its secrets.
var errNoValues = errors.New("the store does not have the secrets")

// view renders the files of a job's session.
type view struct {
	src   layouts.Source
	s     *projector.Session
	keys  keyring
	known *shown // cached; empty: not read yet
}

func newView(src layouts.Source, s *projector.Session, keys keyring) view {
	return view{src, s, keys, new(shown)}
}

// whole returns the payload of a record, and its raw value with its lists restored.
func (v view) whole(ctx context.Context, moved bool, rec events.Record) (events.Payload, events.Raw, error) {
	var err error
	if moved {
		rec, err = v.src.Loader().Whole(ctx, rec)
	} else {
		rec, err = projector.Resolve(ctx, v.src.Loader().Source, rec, sessiondir.MaxValue(v.src))
	}
	if err != nil {
		return nil, nil, err
	}
	p := projector.Decode(rec).Payload
	raw := rawOf(p)
	if lists := events.ListsOf(p); len(lists) > 0 {
		raw, err = lists.Fill(raw, sessiondir.MaxValue(v.src), v.piece)
		err = projector.Unfilled(rec.Offset, err)
	}
	return p, raw, err
}

// rawOf returns a payload's value of a file.
func rawOf(p events.Payload) events.Raw {
	if c, ok := p.(*events.CheckpointSaved); ok {
		return c.Raw
	}
	_, raw, _ := shape.RawOf(p)
	return raw
}

// piece returns turns, from threads that only had appends.
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

// format returns a file's spelling, if the file is not kept whole: the original's, unless the session has another one.
func (v view) format(path string) events.FileFormat {
	if f, ok := v.s.Ledger.Formats[sessiondir.KeyOf(path)]; ok {
		return f
	}
	f := v.s.Ledger.Formats[everyFile]
	if path == jobName {
		f.Indent = jobIndent
	}
	return f
}

// Dir implements sessiondir.View.
func (v view) Dir() string { return dirOf(v.s) }

// Paths implements sessiondir.View.
func (v view) Paths(ctx context.Context) ([]string, error) {
	out, err := v.records(ctx)
	if err != nil {
		return nil, err
	}
	others := make([]string, 0, len(out.files))
	for name := range out.files {
		others = append(others, name)
	}
	list := sessiondir.Paths(v.s, others...)
	return slices.DeleteFunc(list, func(name string) bool { return name == everyFile }), nil
}

// File implements sessiondir.View.
func (v view) File(ctx context.Context, path string) (o sessiondir.Output, ok bool, err error) {
	out, err := v.records(ctx)
	if err != nil {
		return o, false, err
	}
	st := out.files[path]
	o, err = sessiondir.OutputOf(v.src, v.s, path, func(events.FileFormat) (string, error) { return st.rendered(), nil })
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

// rendered returns the hash of the rendered file.
func (st *state) rendered() string {
	if st == nil {
		return sessiondir.Nothing
	}
	return st.sum
}

// render writes a file.
func (v view) render(ctx context.Context, w io.Writer, st *state, f events.FileFormat) error {
	raw, err := v.value(ctx, st)
	if err != nil {
		return err
	}
	return sessiondir.WriteJSON(w, raw, f)
}

// value returns the raw value of a file; a setting has its secrets if there is a key.
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

// sumAs returns the hash of a file rendered in another format; a setting has placeholders.
func (v view) sumAs(ctx context.Context, st *state, f events.FileFormat) (string, error) {
	if st == nil {
		return sessiondir.Nothing, nil
	}
	raw, err := st.current()
	if st.raw == nil {
		raw, err = v.value(ctx, st)
	}
	return sessiondir.SumOf(sessiondir.SpellJSON(raw, f)), err
}

// setting returns a run's setting with its secrets, or with placeholders and the reason.
func (v view) setting(st *state) (events.Raw, string) {
	raw, problem := st.raw, ""
	if _, err := secret.Put(raw, nil); err != nil { // it has placeholders
		raw, problem = v.keys.withSecrets(raw, v.secretOf(st.run), st.secrets)
	}
	touched, err := shape.SettingFile(raw, st.touched) // last, because it may drop members with secrets in them
	if err != nil {
		return raw, err.Error()
	}
	return touched, problem
}

package tallydir

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals/internal/steps"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// view renders the parts of a session.
type view struct {
	src layouts.Source
	s   *projector.Session
}

// format returns the format of a file, and whether the session has one.
func (v *view) format(path string) (events.FileFormat, bool) {
	f, ok := v.s.Ledger.Formats[sessiondir.KeyOf(path)]
	return f, ok
}

// render writes a part as the state has it, without regard to a kept document. If the state lacks the part, render
// writes nothing and there is false. Without known, it uses the format of the original writer.
func (v *view) render(ctx context.Context, p role, f events.FileFormat, known bool, w io.Writer) (there bool, err error) {
	switch p.part {
	case partTurns:
		return v.renderTurns(f, known, w)
	case partTraces:
		return v.renderTraces(f, known, w)
	}
	raw, err := v.value(ctx, p)
	if err != nil {
		return false, err
	}
	if raw == nil && p.part == partMeta {
		began, err := v.began(ctx)
		if err != nil {
			return false, err
		}
		raw, known = defaultMeta(v.s.Subject.ID, began), false
	}
	if raw == nil {
		return false, nil
	}
	if !known {
		f = events.FileFormat{Indent: writerStyle}
	}
	return true, sessiondir.WriteJSON(w, raw, f)
}

// sum returns the hash of the rendered part, or of an empty file if the part is missing.
func (v *view) sum(ctx context.Context, p role, f events.FileFormat, known bool) (string, error) {
	h := sha256.New()
	_, err := v.render(ctx, p, f, known, h)
	return sessiondir.HexSum(h), err
}

// value returns the raw value of a part that is one JSON value, or nil.
func (v *view) value(ctx context.Context, p role) (events.Raw, error) {
	switch p.part {
	case partMeta:
		return sessiondir.Imported(ctx, v.src, v.s)
	case partTrajectory:
		raw, _ := v.s.Ledger.Fields.Get("trajectory")
		return raw, nil
	case partRun:
		return v.result(ctx, p.run)
	}
	return nil, nil
}

// result returns the newest result of a run.
func (v *view) result(ctx context.Context, run events.RunRef) (events.Raw, error) {
	r := v.s.Ledger.Run(run)
	if r == nil || r.Last() == nil {
		return nil, nil
	}
	payload, err := sessiondir.Payload(ctx, v.src, r.Last().Offset)
	if err != nil {
		return nil, err
	}
	if p, ok := payload.(*events.RunFinished); ok {
		return p.Result, nil
	}
	return nil, nil
}

// began returns the beginning of a session: its own member, else the time of its first record.
func (v *view) began(ctx context.Context) (events.Timestamp, error) {
	if at := v.s.Ledger.CreatedAt; at != "" {
		return at, nil
	}
	rec, err := v.src.Loader().Source.Record(ctx, v.s.History.First())
	if err != nil {
		return "", err
	}
	return events.TimestampOf(cmp.Or(rec.Time, rec.Recorded)), nil
}

// defaultMeta returns the meta.json of a session that was not imported.
func defaultMeta(id string, createdAt events.Timestamp) events.Raw {
	b := append([]byte(`{"id":`), rawjson.AppendString(nil, id)...)
	b = append(b, `,"createdAt":`...)
	return append(rawjson.AppendString(b, string(createdAt)), '}')
}

func (v *view) renderTurns(f events.FileFormat, known bool, w io.Writer) (bool, error) {
	if v.s.Threads[events.MainThread] == nil && !known {
		return false, nil
	}
	out := sessiondir.LinesWriter{W: w, Format: f}
	turns := v.s.Threads.Turns(events.MainThread)
	for i := range turns {
		if err := out.Turn(rawOf(&turns[i]), !known); err != nil {
			return true, err
		}
	}
	return true, out.End()
}

// rawOf returns a turn as JSON, also if its producer stored other bytes.
func rawOf(t *projector.Turn) events.Raw {
	if t.Raw != nil {
		return t.Raw
	}
	return []byte(`{"bytes":"` + base64.StdEncoding.EncodeToString(t.Bytes) + `"}`)
}

// renderTraces writes the thread of the step traces. If they are not stored, it computes them from the steps.
func (v *view) renderTraces(f events.FileFormat, known bool, w io.Writer) (bool, error) {
	there, derived := steps.HasTraces(v.s, f, known)
	if !known {
		f = events.FileFormat{Indent: writerStyle}
	}
	d := deriver{out: arrayWriter{w: w, format: f}}
	switch {
	case !there:
		return false, nil
	case derived:
		for _, t := range v.s.Threads.Turns(events.MainThread) {
			step, err := rawjson.Object(t.Raw)
			if err := d.turn(step, err == nil); err != nil {
				return true, err
			}
		}
	default:
		turns := v.s.Threads.Turns(steps.TracesThread)
		for i := range turns {
			if err := d.out.element(rawOf(&turns[i])); err != nil {
				return true, err
			}
		}
	}
	return true, d.out.end()
}

// Dir implements sessiondir.View. It returns the folder from which a conversation was imported, else the one made of
// its id.
func (v *view) Dir() string {
	name := sessiondir.PathOf(v.s.Ledger.Text(fieldFolder))
	if !layouts.IsFileName(name) {
		name = layouts.FileName(v.s.Subject.ID)
	}
	return conversations + "/" + name
}

// Paths implements sessiondir.View.
func (v *view) Paths(context.Context) ([]string, error) {
	list := []string{metaName, turnsName, trajectoryName, tracesName}
	for _, r := range v.s.Ledger.Runs {
		if isRunKind(r.Kind) && r.Last() != nil {
			list = append(list, runPath(r.Ref(), v.s.Ledger.Formats))
		}
	}
	return sessiondir.Paths(v.s, list...), nil
}

// role returns the role of a file of the session. A run with a shortened file name is found by its path.
func (v *view) role(path string) role {
	p := roleOf(path)
	if p.part != partRun || !layouts.IsShortened(p.run.ID) {
		return p
	}
	for _, r := range v.s.Ledger.Runs {
		if r.Kind == p.run.Kind && runPath(r.Ref(), v.s.Ledger.Formats) == path {
			p.run = r.Ref()
		}
	}
	return p
}

// File implements sessiondir.View.
func (v *view) File(ctx context.Context, path string) (f sessiondir.Output, ok bool, err error) {
	p := v.role(path)
	f, err = sessiondir.OutputOf(v.src, v.s, path, func(format events.FileFormat) (string, error) { return v.sum(ctx, p, format, true) })
	if err != nil || f.Gone || f.Whole {
		return f, f.Whole, err
	}
	f.Render = func(w io.Writer) error {
		there, err := v.render(ctx, p, f.Format, f.Known, w)
		if err == nil && !there {
			err = fmt.Errorf("%s: %w", path, projector.ErrNotFound)
		}
		return err
	}
	return f, v.has(p, f), nil
}

// has reports whether the state itself renders a part.
func (v *view) has(p role, f sessiondir.Output) bool {
	switch p.part {
	case partMeta:
		return true
	case partTurns:
		return f.Known || v.s.Threads[events.MainThread] != nil
	case partTrajectory:
		_, ok := v.s.Ledger.Fields.Get("trajectory")
		return ok
	case partTraces:
		there, _ := steps.HasTraces(v.s, f.Format, f.Known)
		return there
	case partRun:
		r := v.s.Ledger.Run(p.run)
		return r != nil && r.Last() != nil
	}
	return false
}

package perstackdir

import (
	"context"
	"errors"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// shown is the session's files, each with its record.
type shown struct {
	files    map[string]*state
	contents map[string]map[string]bool // name of events -> hashes of their raw values
	costs    map[string]bool            // ids of cost.accrued
	moved    bool                       // threads were changed other than by appends
}

// state is a file in the session.
type state struct {
	part    part
	at      events.Offset
	raw     events.Raw // of a job, or of a setting, with placeholders
	run     string     // of a setting
	touched events.Timestamp
	secrets []byte // the document of a setting's secrets, or nil
	sum     string // of the rendered file; of a setting, with placeholders
	value   string // of the raw value; of a setting, with placeholders
}

// records reads the session's files from its records.
func (v view) records(ctx context.Context) (*shown, error) {
	if v.known.files != nil {
		return v.known, nil
	}
	out := &shown{moved: v.s.Ledger.Fork != nil || len(v.s.Ledger.Rewinds) > 0}
	err := v.read(ctx, out)
	if errors.Is(err, errMoved) { // each record has the threads as of its write
		out.moved = true
		err = v.read(ctx, out)
	}
	if err == nil {
		*v.known = *out
	}
	return v.known, err
}

// errMoved reports that a thread was replaced or cut, so that earlier records name other turns.
var errMoved = errors.New("threads were moved")

func (v view) read(ctx context.Context, out *shown) error {
	out.files, out.contents, out.costs = make(map[string]*state), make(map[string]map[string]bool), make(map[string]bool)
	if v.s.Offset() == 0 { // an upper bound of 0 would mean no bound
		return nil
	}
	rejected := make(map[events.Offset]bool, len(v.s.Ledger.Rejected))
	for _, r := range v.s.Ledger.Rejected {
		rejected[r.Offset] = true
	}
	r := reader{v, out, make(map[string]int)}
	for rec, err := range events.Readable(v.src.Loader().Source.Read(ctx, events.Range{Subject: v.s.Subject, Upto: v.s.Offset()})) { // the export reports them
		if err == nil && !rejected[rec.Offset] {
			err = r.apply(ctx, rec)
		}
		if err != nil {
			return err
		}
	}
	return r.finish()
}

// reader makes the files from the records.
type reader struct {
	view
	out   *shown
	names map[string]int // number of events by name
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

// add notes a file with a raw value.
func (r reader) add(path string, st *state, raw events.Raw) {
	st.value = sessiondir.SumOf(raw)
	st.sum = st.value
	if f := r.format(path); f.BOM || f.Indent != "" || f.FinalNewline {
		st.sum = sessiondir.SumOf(sessiondir.SpellJSON(raw, f))
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

// event notes the file of an event. Events of other records have no file.
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

// setting notes the setting of a run. The first one counts.
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

// finish completes the states that later records may change.
func (r reader) finish() error {
	for path, st := range r.out.files {
		if st.raw == nil {
			continue
		}
		raw, err := st.current()
		if err != nil {
			return err
		}
		st.value, st.sum = sumOfSetting(raw), sessiondir.SumOf(sessiondir.SpellJSON(raw, r.format(path)))
	}
	return nil
}

// current returns the present raw value. A setting has the time of its last change.
func (st *state) current() (events.Raw, error) {
	if st.part != partSetting {
		return st.raw, nil
	}
	return shape.SettingFile(st.raw, st.touched)
}

package perstackdir

import (
	"bytes"
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/secret"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// plan has the events that make the session equal to the folder. The spelling of files is settled afterwards, when the
// state renders them.
type plan struct {
	view
	folder *jobFolder
	shown  *shown
	origin *events.Origin

	created *events.SessionCreated
	updated *events.SessionUpdated
	todo    []*value // further values to import, in order
	undoes  bool     // the import overwrites or removes something of the session
}

// Plan implements sessiondir.Found.
func (jf *jobFolder) Plan(ctx context.Context, v view, origin *events.Origin) (sessiondir.Plan, error) {
	out, err := v.records(ctx)
	if err != nil {
		return nil, err
	}
	p := &plan{view: v, folder: jf, shown: out, origin: origin}
	for _, w := range jf.values {
		if !jf.Leaves(w.Path) && w.Value && p.isNew(w) {
			p.todo = append(p.todo, w)
		}
	}
	for name := range out.files {
		if jf.file(name) == nil && !jf.Leaves(name) && !v.s.Ledger.Formats[sessiondir.KeyOf(name)].Gone {
			p.undoes = true
		}
	}
	return p, p.planHead()
}

// isNew reports whether the session lacks a value other than the job.
func (p *plan) isNew(w *value) bool {
	switch w.part {
	case partEvent:
		return !p.shown.contents[w.base][w.sum]
	case partCheckpoint:
		st := p.shown.files[checkpointPath(w.id)]
		p.undoes = p.undoes || st != nil && st.value != w.sum
		return st == nil || st.value != w.sum
	case partSetting:
		return p.isNewSetting(w)
	}
	return false
}

// isNewSetting reports whether a part of a setting is imported. If the session has the setting, only changes that the
// original makes count: the time of its last use, and the values of its secrets. A setting with other changes is kept
// whole.
func (p *plan) isNewSetting(w *value) bool {
	st := p.shown.files[settingPath(w.run)]
	if st == nil {
		return true
	}
	if st.value != w.setting.sum() {
		return p.touched(st, w) != nil
	}
	return p.lacksValues(st, w)
}

// touched returns the event that makes a setting equal to a file, or nil. If secrets are left out, the two are compared
// without them.
func (p *plan) touched(st *state, w *value) *events.RunAnnotated {
	e := shape.Touched(w.run, w.setting.UpdatedAt)
	later := *st
	later.touched = e.TouchedAt
	if raw, problem := p.setting(&later); problem == "" && sessiondir.SumOf(raw) == w.sum {
		return e
	}
	raw, err := later.current()
	if leftOut := p.folder.In.Options.NoSecrets || p.keys.err != nil; leftOut && err == nil && sumOfSetting(raw) == w.setting.sum() {
		return e
	}
	return nil
}

// lacksValues reports whether the store lacks the values of a file's secrets, or has others for the same placeholders.
func (p *plan) lacksValues(st *state, w *value) bool {
	if len(w.setting.values) == 0 || p.folder.In.Options.NoSecrets || p.keys.err != nil {
		return false
	}
	if have, err := p.keys.values(p.secretOf(w.run), st.secrets); err == nil && bytes.Equal(secret.Pack(have), secret.Pack(w.setting.values)) {
		return false
	}
	raw, err := st.current()
	return err == nil && bytes.Equal(raw, w.setting.raw)
}

// secretOf returns the document with the secrets of a run's setting.
func (v view) secretOf(run string) events.Subject {
	return secretOf(v.s.Subject.Namespace, jobID(v.s.Subject), run)
}

// Contradicts implements sessiondir.Plan. A plan that only adds values contradicts nothing.
func (p *plan) Contradicts(since map[string]bool) bool {
	for typ := range since {
		if typ != events.TypeCostAccrued && p.undoes {
			return true
		}
	}
	return false
}

// planHead plans the events of the session's own fields.
func (p *plan) planHead() error {
	c := events.SessionCreated{Kind: events.KindJob, CreatedAt: p.folder.created, Origin: p.origin}
	var set events.Fields
	if w := p.folder.of(partJob); w != nil {
		st := p.shown.files[jobName]
		if st == nil || !bytes.Equal(st.raw, w.raw) {
			c.Raw, p.undoes = w.raw, p.undoes || st != nil
		}
		set = p.changed(w.job)
	}
	if key := p.folder.key; key != p.s.Ledger.Text(fieldFolder) && p.s.Ledger.Created == 0 {
		set = append(set, events.Field{Name: fieldFolder, Value: rawjson.AppendString(nil, key)})
	}
	if mode := p.folder.usualMode(); mode != 0 && p.s.Ledger.Created == 0 {
		c.Formats = map[string]events.FileFormat{everyFile: {Mode: mode}}
	}
	var err error
	p.created, p.updated, err = sessiondir.Head(p.s, c, set)
	return err
}

// changed returns the fields of a job that differ from the session's.
func (p *plan) changed(j shape.Job) events.Fields {
	var set events.Fields
	if p.s.Ledger.Created == 0 && j.IsInitial() {
		return nil
	}
	for _, f := range j.Fields() {
		have, ok := p.s.Ledger.Fields.Get(f.Name)
		if isNull := string(f.Value) == "null"; ok && !bytes.Equal(have, f.Value) || !ok && !isNull {
			set = append(set, f)
		}
	}
	return set
}

// usualMode returns the most frequent mode of the files.
func (jf *jobFolder) usualMode() int64 {
	counts := make(map[int64]int)
	for _, f := range jf.Files {
		counts[f.Mode]++
	}
	usual := int64(0)
	for mode, n := range counts {
		if n > counts[usual] {
			usual = mode
		}
	}
	return usual
}

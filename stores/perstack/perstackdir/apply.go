package perstackdir

import (
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/secret"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
	"github.com/tallylog/tally/stores/perstack/internal/share"
)

// guards are the types of events that invalidate a plan.
var guards = []string{events.TypeRunCreated, events.TypeRunStarted, events.TypeRunProgressed, events.TypeRunFinished, events.TypeRunAnnotated,
	events.TypeCheckpointSaved, events.TypeCheckpointCleared}

// writerMeta marks a thread that imports write, so that later imports continue it. No other writer appends to it.
var writerMeta = events.Raw(`{"writer":"` + EventSource + `"}`)

// applying is a plan that is being applied.
type applying struct {
	*plan
	w       *sessiondir.Writer
	known   share.Messages
	threads map[string]string // run -> thread for its messages
	begun   map[string]bool   // threads that have the mark
}

// Apply implements sessiondir.Plan.
func (p *plan) Apply(ctx context.Context) error {
	a := applying{plan: p, w: p.folder.In.Writer(p.s.Subject, p.s.Offset(), guards...), threads: make(map[string]string), begun: make(map[string]bool)}
	for _, name := range p.s.Threads.Names() {
		a.known.Add(name, rawsOf(p.s.Threads.Turns(name))...)
	}
	if p.created != nil {
		if err := a.add(ctx, "created", p.created.CreatedAt, p.created); err != nil {
			return err
		}
	}
	if p.updated != nil {
		if err := a.add(ctx, "updated", p.began(), p.updated); err != nil {
			return err
		}
	}
	for _, v := range p.todo {
		if err := a.put(ctx, v); err != nil {
			return err
		}
	}
	return a.w.Flush(ctx)
}

// began returns the time for events of a new session, whose past did not happen today, or "".
func (p *plan) began() events.Timestamp {
	if p.s.Offset() == 0 {
		return p.folder.created
	}
	return ""
}

func rawsOf(turns []projector.Turn) []events.Raw {
	raws := make([]events.Raw, len(turns))
	for i := range turns {
		raws[i] = turns[i].Raw
	}
	return raws
}

func (a *applying) add(ctx context.Context, what string, at events.Timestamp, p events.Payload) error {
	e, err := events.New(EventSource, a.s.Subject, p)
	if err != nil {
		return err
	}
	return a.w.Add(ctx, stamp.Named(e, a.s.Offset(), what, at))
}

func (a *applying) put(ctx context.Context, v *value) error {
	if v.part == partSetting {
		return a.putSetting(ctx, v)
	}
	raw, err := a.folder.readAgain(v)
	if err != nil {
		return err
	}
	own := a.own(v.run)
	split, err := a.known.Split(own, raw)
	if err != nil {
		return err
	}
	if err := a.putTurns(ctx, v, own, split.New); err != nil {
		return err
	}
	if v.part == partCheckpoint {
		c, err := shape.ParseCheckpoint(raw)
		if err != nil {
			return err
		}
		return a.add(ctx, v.Path, a.timeOf(v), c.Saved(split.Raw, split.Lists, 0))
	}
	e, err := shape.ParseEvent(raw)
	if err != nil {
		return err
	}
	if err := a.putCost(ctx, e); err != nil {
		return err
	}
	return a.add(ctx, v.Path, a.timeOf(v), e.Payload(split.Raw, split.Lists))
}

// timeOf returns the time when a value was stored, as far as it is known.
func (a *applying) timeOf(v *value) events.Timestamp {
	if v.at == 0 {
		return a.folder.created
	}
	return stampOf(v.at)
}

// readAgain reads a file's raw value again, unchanged since the scan.
func (jf *jobFolder) readAgain(v *value) (events.Raw, error) {
	data, err := jf.Tree.Read(v.File, v.Size+1)
	if err != nil {
		return nil, err
	}
	if sessiondir.SumOf(data) != v.Sum {
		return nil, sessiondir.ErrChanged
	}
	j, err := sessiondir.ReadJSON(data, sessiondir.TurnInside)
	return j.Raw, err
}

// own returns the thread of a run that this import appends to: that of earlier imports, or a new one.
func (a *applying) own(run string) string {
	if name, ok := a.threads[run]; ok {
		return name
	}
	for n := 1; ; n++ {
		name := shape.RunThread(run, n)
		th := a.s.Threads[name]
		mine := th != nil && string(th.Meta) == string(writerMeta)
		if mine || th == nil && a.s.Threads[share.ResultsOf(name)] == nil {
			a.threads[run], a.begun[name] = name, mine
			return name
		}
	}
}

// putTurns appends the new messages of a value, before it.
func (a *applying) putTurns(ctx context.Context, v *value, own string, entries []events.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	p := &events.TurnAppended{Entries: entries}
	if !a.begun[own] {
		p.ThreadMeta, a.begun[own] = map[string]events.Raw{own: writerMeta}, true
	}
	run := shape.RunRef(v.run)
	for i, e := range entries {
		entries[i].Run = &run
		a.known.Add(e.Thread, e.Turn)
	}
	return a.add(ctx, v.Path+" messages", a.timeOf(v), p)
}

// putCost appends the usage of a step, before the event that has it. After a crash between the two, the next import
// finds that the event is missing.
func (a *applying) putCost(ctx context.Context, event shape.Event) error {
	p, id, ok := event.Cost(a.model(event.Run))
	if !ok || a.shown.costs[id] {
		return nil
	}
	a.shown.costs[id] = true
	e, err := events.New(shape.Source, a.s.Subject, p)
	if err != nil {
		return err
	}
	e.ID, e.Time = id, event.At()
	return a.w.Add(ctx, e)
}

// model returns the model of a run's setting, or "".
func (a *applying) model(run string) string {
	if v := a.folder.setting(run); v != nil {
		return v.setting.Model
	}
	if r := a.s.Ledger.Run(shape.RunRef(run)); r != nil && len(r.Models) > 0 {
		return r.Models[0]
	}
	return ""
}

// putSetting appends a setting, after its secrets.
func (a *applying) putSetting(ctx context.Context, v *value) error {
	st := a.shown.files[settingPath(v.run)]
	var ref events.DocRef
	if len(v.setting.values) > 0 && !a.folder.In.Options.NoSecrets {
		doc := a.secretOf(v.run)
		ref = events.RefOf(doc, 0)
		if st == nil || st.value == v.setting.sum() && a.lacksValues(st, v) {
			if err := a.folder.writeSecret(ctx, doc, secret.Pack(v.setting.values), a.s.Subject); err != nil {
				return err
			}
		}
	}
	if st == nil {
		return a.add(ctx, v.Path, stampOf(v.setting.StartedAt), v.setting.Created(v.setting.raw, ref))
	}
	if st.value == v.setting.sum() {
		return nil
	}
	if e := a.touched(st, v); e != nil {
		return a.add(ctx, v.Path, e.TouchedAt, e)
	}
	return nil
}

// writeSecret writes a sealed document.
func (jf *jobFolder) writeSecret(ctx context.Context, doc events.Subject, plain []byte, session events.Subject) error {
	content, err := jf.keys.ring.SealDocument(doc, plain)
	if err != nil {
		return err
	}
	e := events.Event{Source: EventSource, Type: events.TypeDocumentWritten, Subject: doc, ContentType: sealed.ContentType, Data: content}
	e.ID = events.DerivedID(Format, doc.String(), sessiondir.SumOf(content)) // two seals of the same content differ
	meta := events.DocMeta{Links: []events.Link{{Rel: "session", To: session.String()}}}
	ack, err := jf.In.Target.Append(ctx, doc, log.Any, e.WithExtension(events.ExtDoc, meta.String()))
	if err == nil && !ack.Duplicate {
		jf.In.Added(1)
	}
	return err
}

package erratadir

import (
	"bytes"
	"context"
	"slices"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// step is an event of a plan. If its payload needs the session's last offset, waits is set, and the steps before it
// are appended first.
type step struct {
	payload func(last events.Offset) events.Payload
	waits   bool
	what    string
	source  string // CloudEvents source; "": EventSource
	id      string // of the event; "": derived from base and content
	at      events.Timestamp
}

// plan lists the changes after which the session has the folder's content. Seal records the spelling of the files
// afterwards.
type plan struct {
	view
	u      *folder
	base   events.Offset // the head at which the plan was made
	origin *events.Origin
	steps  []step
	recipe *recipeDoc

	pending  map[string][]events.Raw // turns to append, by thread
	extends  bool                    // turns are appended
	rewrites bool                    // threads are replaced or truncated
	again    bool                    // an existing run gets another result
	head     bool                    // properties of the session change
}

func (p *plan) fresh() bool { return p.base == 0 }

func (p *plan) add(what string, at events.Timestamp, payload events.Payload) {
	p.steps = append(p.steps, step{payload: func(events.Offset) events.Payload { return payload }, what: what, at: at})
}

func (p *plan) addAfter(what string, at events.Timestamp, payload func(last events.Offset) events.Payload) {
	p.steps = append(p.steps, step{payload: payload, waits: true, what: what, at: at})
}

// Plan implements sessiondir.Found.
func (u *folder) Plan(ctx context.Context, v view, origin *events.Origin) (sessiondir.Plan, error) {
	p := &plan{view: v, u: u, base: v.s.Offset(), origin: origin, pending: make(map[string][]events.Raw)}
	if err := p.planHead(ctx); err != nil {
		return nil, err
	}
	p.planThreads()
	if err := p.planRuns(ctx); err != nil {
		return nil, err
	}
	return p, p.planCheckpoint(ctx)
}

// Contradicts implements sessiondir.Plan. Adding turns after those of other writers removes nothing.
func (p *plan) Contradicts(since map[string]bool) bool {
	head := since[events.TypeSessionUpdated] || since[events.TypeCheckpointSaved] || since[events.TypeCheckpointCleared]
	return sessiondir.MovesThreads(since) && p.rewrites || since[events.TypeSessionRewound] && (p.rewrites || p.extends) ||
		(since[events.TypeRunFinished] || since[events.TypeRunAnnotated]) && p.again || head && p.head
}

// planHead plans the properties of the session.
func (p *plan) planHead(ctx context.Context) error {
	raw, err := p.planMetadata(ctx)
	if err != nil {
		return err
	}
	if s := p.u.of(partRecipe); s != nil {
		p.recipe = newRecipe(p.s.Subject.Namespace, p.u.recipe)
	}
	c := events.SessionCreated{Kind: kindOf(p.u.ID), CreatedAt: p.u.created, Origin: p.origin, Raw: raw, Formats: p.planFormats()}
	if m, ok := p.u.metadata.Get("models"); ok && string(m) != "null" {
		c.Models = panel.Texts(p.u.metadata, "models")
	}
	if p.recipe != nil {
		c.Recipe = events.RefOf(p.recipe.doc, 0)
	}
	created, updated, err := sessiondir.Head(p.s, c, p.planFields())
	if created != nil {
		p.add("created", p.u.created, created)
	}
	if updated != nil {
		p.add("updated", p.began(), updated)
	}
	return err
}

// began returns the time for the import of a new session, so that its history is not dated today.
func (p *plan) began() events.Timestamp {
	if p.fresh() {
		return p.u.created
	}
	return ""
}

func kindOf(id string) string {
	if id == promptsID {
		return events.KindPrompts
	}
	return events.KindPanel
}

// planMetadata returns the members of session_metadata.json beside the runs, if they differ from the session's.
func (p *plan) planMetadata(ctx context.Context) (events.Raw, error) {
	if p.u.of(partMetadata) == nil {
		return nil, nil
	}
	want := panel.ObjectJSON(p.u.metadata)
	have, err := sessiondir.Imported(ctx, p.src, p.s)
	if err != nil || bytes.Equal(have, want) {
		return nil, err
	}
	p.head = p.head || have != nil
	return want, nil
}

// planFields returns the fields of the session that change.
func (p *plan) planFields() events.Fields {
	var set events.Fields
	change := func(name string, want events.Raw) {
		have, ok := p.s.Ledger.Fields.Get(name)
		if ok && bytes.Equal(have, want) || !ok && want == nil {
			return
		}
		if want == nil {
			want = events.Raw("null")
		}
		set = append(set, events.Field{Name: name, Value: want})
	}
	if p.u.of(partContent) != nil {
		var want events.Raw
		if !slices.EqualFunc(p.u.content, panel.UsualContent(p.u.ID, len(p.u.contents)), sameMember) {
			want = panel.ObjectJSON(p.u.content)
		}
		change(panel.FieldContent, want)
	}
	if p.s.Ledger.Created == 0 {
		return set
	}
	if p.u.of(partMetadata) != nil {
		if models, ok := p.u.metadata.Get("models"); ok {
			change("models", models)
		}
	}
	switch {
	case p.recipe != nil:
		change("recipe", panel.JSON(string(events.RefOf(p.recipe.doc, 0))))
	case !p.u.has(partRecipe):
		change("recipe", nil)
	}
	p.head = p.head || len(set) > 0
	return set
}

func sameMember(a, b rawjson.Member) bool {
	return a.Name == b.Name && bytes.Equal(a.Value, b.Value)
}

// planFormats returns the spelling of the files that the state should render. Seal checks whether it does.
func (p *plan) planFormats() map[string]events.FileFormat {
	list := make(map[string]events.FileFormat)
	for _, s := range p.u.Files {
		key := sessiondir.KeyOf(s.Path)
		if _, ok := p.s.Ledger.Formats[key]; ok || !s.Value {
			continue
		}
		format := s.Format
		format.Mode = s.Mode
		list[key] = format
	}
	return list
}

// planThreads plans the changes of the histories. A file that cannot be parsed removes nothing.
func (p *plan) planThreads() {
	switch {
	case p.u.ID == promptsID:
		if p.u.of(partPrompts) != nil {
			p.planThread(promptsID, p.u.prompts, nil)
		}
		return
	case p.u.of(partContent) == nil && p.u.of(partHistory) == nil:
		if !p.u.has(partContent) && !p.u.has(partHistory) {
			p.dropThreads(nil)
		}
		return
	}
	for _, x := range p.u.threads {
		turns, _ := panel.List(p.u.threads, x.Name)
		p.planThread(x.Name, turns, x.Value)
	}
	p.dropThreads(p.u.threads)
}

// planThread makes a thread have these turns. value is the JSON of an empty thread.
func (p *plan) planThread(name string, want []events.Raw, value events.Raw) {
	th := p.s.Threads[name]
	have := p.s.Threads.Turns(name)
	kept := 0
	for kept < min(len(have), len(want)) && bytes.Equal(have[kept].Raw, want[kept]) {
		kept++
	}
	if th == nil && len(want) == 0 && value != nil || len(have) > kept {
		var meta events.Raw
		if string(value) == "null" {
			meta = value
		}
		p.add("thread", p.began(), sessiondir.KeepFirst(name, kept, meta))
		p.rewrites = p.rewrites || th != nil
	}
	if kept < len(want) {
		p.pending[name], p.extends = want[kept:], true
	}
}

// dropThreads removes the threads that the folder does not have.
func (p *plan) dropThreads(wanted rawjson.Members) {
	gone := make(map[string]int)
	for name := range p.s.Threads {
		if _, ok := wanted.Get(name); !ok {
			gone[name] = 0
		}
	}
	if len(gone) > 0 {
		p.add("threads", "", &events.ThreadTruncated{Lengths: gone, Reason: "import"})
		p.rewrites = true
	}
}

// planRuns plans the runs and markers of the folder. The turns of a run precede it, if they can be found.
func (p *plan) planRuns(ctx context.Context) error {
	shown, err := p.records(ctx)
	if err != nil {
		return err
	}
	have := shown.rows
	markers := make(map[string]int)
	runs := make(map[string]*row)
	for i := range have {
		if have[i].marker {
			markers[string(have[i].summary)]++
		} else {
			runs[have[i].id] = &have[i]
		}
	}
	entries := pair(p.u.ID, p.u.summaries, p.u.contents)
	recognise(entries, have)
	for i, e := range entries {
		switch {
		case e.marker && markers[string(e.summary)] > 0:
			markers[string(e.summary)]--
		case e.marker:
			p.addAfter("marker/"+strconv.Itoa(i), e.at(), func(last events.Offset) events.Payload {
				return &events.SessionRewound{To: last, Reason: panel.MarkerReason, Raw: e.summary}
			})
		default:
			p.planAnswers(i, e)
			p.planRun(e, runs[e.id])
		}
	}
	p.planRest()
	return nil
}

// planRun plans the parts of a run that the session does not have.
func (p *plan) planRun(e sessionRow, have *row) {
	if have != nil {
		if e.content == nil && p.u.has(partContent) && p.u.of(partContent) == nil {
			e.content = have.content // the file cannot be parsed: the old content stays
		}
		if e.summary == nil && p.u.has(partMetadata) && p.u.of(partMetadata) == nil {
			e.summary = have.summary
		}
	}
	if have == nil || !bytes.Equal(e.summary, have.summary) || !bytes.Equal(e.content, have.content) {
		p.again = p.again || have != nil
		p.add("run/"+e.id, e.at(), &events.RunFinished{Run: e.ref(), Outcome: e.outcome(), Result: e.result(), Schema: panel.Schema, FinishedAt: e.at()})
	}
	if a := e.annotation(have); a != nil && (have == nil || !isNoted(have.run, a)) {
		p.add("note/"+e.id, e.at(), a)
	}
	costs, bad := e.costs()
	for _, model := range bad {
		if s := p.u.of(partMetadata); s != nil {
			s.Problem(0, "run of "+string(e.at())+": costs or tokens of "+strconv.Quote(model)+" are not valid: not counted (kept as they are)")
		}
	}
	for _, c := range costs {
		if !p.isCounted(c) {
			p.steps = append(p.steps, step{payload: func(events.Offset) events.Payload { return c }, what: "cost", at: e.at(),
				source: costSource, id: events.DerivedID("cost", p.s.Subject.ID, c.Run.ID, c.Model, c.Purpose, "")})
		}
	}
}

// isNoted reports whether a run has the values of an annotation.
func isNoted(r *projector.Run, a *events.RunAnnotated) bool {
	same := func(want *string, have string) bool { return want == nil || *want == have }
	return same(a.Note, r.Note) && same(a.Selected, r.Selected) && same(a.Rating, r.Rating) &&
		(a.AppliedFiles == nil || slices.Equal(a.AppliedFiles, r.AppliedFiles)) && (a.Tags == nil || slices.Equal(a.Tags, r.Tags))
}

// isCounted reports whether the session has a model's cost of a run. It counts once, even if the file changes later.
func (p *plan) isCounted(c *events.CostAccrued) bool {
	return slices.ContainsFunc(p.s.Ledger.Costs, func(have projector.Cost) bool {
		return have.Model == c.Model && have.Run != nil && *have.Run == *c.Run
	})
}

// planCheckpoint plans the unfinished run.
func (p *plan) planCheckpoint(ctx context.Context) error {
	open := panel.Unfinished(p.s.Ledger)
	if p.u.of(partCheckpoint) == nil {
		if open != nil && !p.u.has(partCheckpoint) {
			p.add("checkpoint", "", &events.CheckpointCleared{Kind: events.CheckpointResume, ID: open.ID, Reason: "import"})
			p.head = true
		}
		return nil
	}
	have, err := p.checkpoint(ctx)
	if err != nil || bytes.Equal(have, p.u.checkpoint) {
		return err
	}
	m := panel.Object(p.u.checkpoint)
	at := panel.Time(m, "timestamp")
	c := events.CheckpointSaved{ID: runID(at, p.u.ID, string(at), m.Text("prompt")), Kind: events.CheckpointResume, Prompt: m.Text("prompt"), Raw: p.u.checkpoint}
	if open != nil {
		p.head = true
	}
	if open != nil && open.ID != c.ID {
		p.add("checkpoint", at, &events.CheckpointCleared{Kind: events.CheckpointResume, Reason: "import"})
	}
	p.addAfter("checkpoint", at, func(last events.Offset) events.Payload {
		c.At = last
		return &c
	})
	return nil
}

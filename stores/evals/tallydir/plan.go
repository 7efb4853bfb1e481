package tallydir

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals/internal/steps"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// plan lists the changes after which the session renders the folder. It has only small data: turns and results are
// read again when they are appended.
type plan struct {
	*view
	f      *folder
	fresh  bool           // the session has no records yet
	base   events.Offset  // the head at which the plan was made
	origin *events.Origin // for the session

	created *events.SessionCreated
	updated *events.SessionUpdated
	moves   []events.Payload // replaced or truncated threads
	main    int              // the first turn of the folder to append; -1: none
	traces  int
	runs    []*source
	whole   []*source
	gone    []events.Subject // documents to delete
	formats map[string]events.FileFormat

	rewrites bool // threads are replaced or truncated, not only extended

	recall bool             // keep the events in made, to compute the session from them
	made   []projector.Fact // in order
	alone  bool             // the session has only these events, and this import added them
}

// Plan implements sessiondir.Found.
func (f *folder) Plan(ctx context.Context, v *view, origin *events.Origin) (sessiondir.Plan, error) {
	p := &plan{view: v, f: f, base: v.s.Offset(), fresh: v.s.Offset() == 0, origin: origin, main: -1, traces: -1}
	p.planThreads()
	if err := p.planRuns(ctx); err != nil {
		return nil, err
	}
	if err := p.planFormats(ctx); err != nil {
		return nil, err
	}
	return p, p.planHead(ctx)
}

// planThreads plans the changes of the steps and of stored step traces.
func (p *plan) planThreads() {
	if s := p.f.file(turnsName); s != nil {
		p.main = p.planThread(events.MainThread, s.lines.turns, s.lines.kept)
	} else {
		p.dropThread(events.MainThread)
	}
	switch s := p.f.file(tracesName); {
	case s == nil, s.Format.Derived:
		p.dropThread(steps.TracesThread)
	case s.Value:
		p.traces = p.planThread(steps.TracesThread, s.traces, p.keptTraces(s))
	}
}

// planThread makes a thread have n turns, of which it has the first kept ones. It returns the first turn to append,
// or -1.
func (p *plan) planThread(name string, n, kept int) int {
	have := p.s.Threads[name]
	switch {
	case have == nil && n > 0:
	case have != nil && len(have.Turns) == kept:
	default: // it has turns that the folder lacks, or has to exist without turns
		var meta events.Raw
		if have != nil {
			meta, p.rewrites = have.Meta, true
		}
		p.moves = append(p.moves, sessiondir.KeepFirst(name, kept, meta))
	}
	if n == kept {
		return -1
	}
	return kept
}

// dropThread removes a thread that the folder does not have.
func (p *plan) dropThread(name string) {
	if p.s.Threads[name] == nil {
		return
	}
	p.moves = append(p.moves, &events.ThreadTruncated{Lengths: map[string]int{name: 0}, Reason: "import"})
	p.rewrites = true
}

// keptTraces returns the number of leading step traces that equal those in the file.
func (p *plan) keptTraces(s *source) int {
	have := p.s.Threads.Turns(steps.TracesThread)
	if len(have) == 0 {
		return 0
	}
	data, err := p.f.read(s)
	if err != nil {
		return 0
	}
	elements, err := readArray(data)
	if err != nil {
		return 0
	}
	kept := 0
	same := bytes.Equal
	if s.Format.Indent != "" {
		same = rawjson.Equal // the indent restores the white space
	}
	for kept < min(len(have), len(elements)) && same(have[kept].Raw, elements[kept]) {
		kept++
	}
	return kept
}

// planRuns finds the runs whose newest result differs.
func (p *plan) planRuns(ctx context.Context) error {
	for _, s := range p.f.files {
		if s.role.part != partRun || !s.Value {
			continue
		}
		same, err := p.holds(ctx, s)
		if err != nil {
			return err
		}
		if !same {
			p.runs = append(p.runs, s)
		}
	}
	return nil
}

// holds reports whether the session has the value of a JSON file.
func (p *plan) holds(ctx context.Context, s *source) (bool, error) {
	have, err := p.value(ctx, s.role)
	if err != nil || have == nil {
		return false, err
	}
	if s.same && s.Data != nil {
		return bytes.Equal(sessiondir.SpellJSON(have, s.Format), s.Data), nil
	}
	want, err := p.f.rendered(s)
	return sessiondir.SumOf(sessiondir.SpellJSON(have, s.Format)) == want, err
}

// planFormats plans how each file is spelled or kept, and which are gone.
func (p *plan) planFormats(ctx context.Context) error {
	p.formats = make(map[string]events.FileFormat)
	for _, s := range p.f.files {
		format, err := p.formatOf(ctx, s)
		if err != nil {
			return err
		}
		if have, ok := p.format(s.Path); !ok || have != format {
			p.formats[sessiondir.KeyOf(s.Path)] = format
		}
	}
	for _, name := range p.missing() {
		have, known := p.format(name)
		if have.Doc != "" {
			if doc, _, err := have.Doc.Parse(p.s.Subject.Namespace); err == nil {
				p.gone = append(p.gone, doc)
			}
		}
		gone, err := p.goneFormat(ctx, name)
		if err != nil {
			return err
		}
		if !known || have != gone {
			p.formats[sessiondir.KeyOf(name)] = gone
		}
	}
	return nil
}

// formatOf returns the format of an existing file.
func (p *plan) formatOf(ctx context.Context, s *source) (events.FileFormat, error) {
	format := s.Format
	format.Mode = s.Mode
	if s.exact() {
		return format, nil
	}
	p.whole = append(p.whole, s)
	format.Doc = events.RefOf(p.document(s), 0)
	if s.role.part == partOther {
		return format, nil
	}
	var err error
	format.Of, err = p.future(ctx, s.role, s, format)
	return format, err
}

func (p *plan) document(s *source) events.Subject {
	return documentOf(p.s.Subject.Namespace, p.origin.Root, s.Full)
}

// missing lists the files that the session would render, or did have, and the folder lacks. It omits runs that were
// never in a folder.
func (p *plan) missing() []string {
	others := []string{metaName}
	if p.f.file(trajectoryName) != nil {
		others = append(others, tracesName) // they would be computed
	}
	return slices.DeleteFunc(sessiondir.Paths(p.s, others...), func(path string) bool { return p.f.file(path) != nil })
}

// goneFormat returns the format of a missing file. It stays missing as long as the state renders the same for it as
// after this import.
func (p *plan) goneFormat(ctx context.Context, path string) (events.FileFormat, error) {
	gone := events.FileFormat{Gone: true}
	at := p.role(path)
	if at.part == partOther {
		return gone, nil
	}
	var err error
	gone.Of, err = p.future(ctx, at, nil, gone)
	return gone, err
}

// future returns the hash of a part as the state will render it after the plan.
func (p *plan) future(ctx context.Context, at role, s *source, format events.FileFormat) (string, error) {
	switch {
	case s != nil && s.Value:
		return p.f.rendered(s)
	case s == nil && at.part != partMeta && at.part != partRun:
		return sessiondir.Nothing, nil // the plan removes it
	case p.s.Ledger.Created == 0 && at.part == partMeta:
		return sessiondir.SumOf(sessiondir.SpellJSON(defaultMeta(p.f.ID, p.f.created), events.FileFormat{Indent: writerStyle})), nil
	}
	return p.sum(ctx, at, format, true)
}

// planHead plans the changes outside of turns and runs as one event, or two for a new session.
func (p *plan) planHead(ctx context.Context) error {
	created := events.SessionCreated{Kind: events.KindConversation, CreatedAt: p.f.created, Origin: p.origin, Formats: maps.Clone(p.formats)}
	for _, s := range p.runs {
		delete(created.Formats, sessiondir.KeyOf(s.Path)) // the run's own event has it
	}
	var err error
	if s := p.f.file(metaName); s != nil && s.Value {
		if created.Raw, err = p.changed(ctx, s); err != nil {
			return err
		}
	}
	set, err := p.planFields(ctx)
	if err != nil {
		return err
	}
	p.created, p.updated, err = sessiondir.Head(p.s, created, set)
	return err
}

// changed returns the value of a JSON file, nil if the session has it.
func (p *plan) changed(ctx context.Context, s *source) (events.Raw, error) {
	if same, err := p.holds(ctx, s); same || err != nil {
		return nil, err
	}
	return p.reread(s)
}

// reread returns the value of a JSON file that was scanned before.
func (p *plan) reread(s *source) (events.Raw, error) {
	if s.raw != nil {
		return s.raw, nil
	}
	data, err := p.f.read(s)
	if err != nil {
		return nil, err
	}
	if sessiondir.SumOf(data) != s.Sum {
		return nil, sessiondir.ErrChanged
	}
	v, err := sessiondir.ReadJSON(data, insideOf(s.role.part))
	return v.Raw, err
}

// planFields returns the fields of the session that change.
func (p *plan) planFields(ctx context.Context) (events.Fields, error) {
	var set events.Fields
	switch s := p.f.file(trajectoryName); {
	case s == nil:
		if _, ok := p.s.Ledger.Fields.Get("trajectory"); ok {
			set = append(set, events.Field{Name: "trajectory", Value: events.Raw("null")})
		}
	case s.Value:
		raw, err := p.changed(ctx, s)
		if err != nil {
			return nil, err
		}
		if raw != nil {
			set = append(set, events.Field{Name: "trajectory", Value: raw})
		}
	}
	if p.Dir() != p.f.Dir {
		field := events.Field{Name: fieldFolder, Value: events.Raw("null")}
		if layouts.FileName(p.f.ID) != p.f.name() {
			field.Value = rawjson.AppendString(nil, sessiondir.KeyOf(p.f.name()))
		}
		set = append(set, field)
	}
	return set, nil
}

package erratadir

import (
	"bytes"
	"context"
	"io"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// view renders the files of a session.
type view struct {
	src   layouts.Source
	s     *projector.Session
	known *shownRows // cached records; its View is nil until they are read
}

func newView(src layouts.Source, s *projector.Session) view {
	return view{src: src, s: s, known: new(shownRows)}
}

// Dir implements sessiondir.View.
func (v view) Dir() string { return dirOf(v.s.Subject.ID) }

// Paths implements sessiondir.View.
func (v view) Paths(context.Context) ([]string, error) { return v.paths(), nil }

func (v view) paths() []string {
	if own, ok := beside[v.s.Subject.ID]; ok {
		return sessiondir.Paths(v.s, own)
	}
	return sessiondir.Paths(v.s, metadataName, contentName, checkpointName, recipeName)
}

// File implements sessiondir.View.
func (v view) File(ctx context.Context, path string) (f sessiondir.Output, ok bool, err error) {
	format, known := v.s.Ledger.Formats[sessiondir.KeyOf(path)]
	data, err := v.render(ctx, path, format, known)
	if err != nil {
		return f, false, err
	}
	f, err = sessiondir.OutputOf(v.src, v.s, path, func(events.FileFormat) (string, error) { return sessiondir.SumOf(data), nil })
	if err == nil && partOf(v.s.Subject.ID, path) == partPrompts {
		turns := v.s.Threads.Turns(promptsID)
		err = f.Continue(len(turns), func(n int) []byte { return panel.RawOf(&turns[n]) })
	}
	if !f.Known {
		f.Format.Mode = privateMode
	}
	f.Render = func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
	return f, f.Whole || !f.Gone && data != nil, err
}

// render returns a file as the state renders it, without regard to a kept document, or nil.
func (v view) render(ctx context.Context, path string, format events.FileFormat, known bool) ([]byte, error) {
	var data []byte
	var err error
	switch partOf(v.s.Subject.ID, path) {
	case partRecipe:
		return v.recipe(ctx)
	case partPrompts:
		return v.prompts(format, known)
	case partMetadata:
		data, err = v.metadata(ctx)
	case partContent:
		data, err = v.content(ctx, known && !format.Gone)
	case partCheckpoint:
		data, err = v.checkpoint(ctx)
	case partHistory:
		if len(v.s.Threads) > 0 || known && !format.Gone {
			data = panel.Histories(v.s.Threads)
		}
	}
	if err != nil || data == nil {
		return nil, err
	}
	return sessiondir.SpellJSON(data, format), nil
}

// prompts renders prompt_history.jsonl.
func (v view) prompts(format events.FileFormat, known bool) ([]byte, error) {
	if v.s.Threads[promptsID] == nil && (!known || format.Gone) {
		return nil, nil
	}
	if !known {
		format.FinalNewline = true
	}
	b := bytes.NewBuffer([]byte{}) // not nil: a file without prompts is still a file
	out := sessiondir.LinesWriter{W: b, Format: format}
	turns := v.s.Threads.Turns(promptsID)
	for i := range turns {
		if err := out.Turn(panel.RawOf(&turns[i]), false); err != nil {
			return nil, err
		}
	}
	err := out.End()
	return b.Bytes(), err
}

// row is a run or a marker in the state.
type row struct {
	sessionRow
	live bool // it was not imported
	run  *projector.Run
}

// shownRows has the runs and markers of the session's records.
type shownRows struct {
	*panel.View
	rows []row // in the order of the log
}

// records reads the session's records.
func (v view) records(ctx context.Context) (*shownRows, error) {
	if v.known.View != nil {
		return v.known, nil
	}
	out := shownRows{View: panel.New(v.s)}
	if v.s.Offset() == 0 { // a bound of 0 would mean no bound, and another import may add records meanwhile
		*v.known = out
		return v.known, nil
	}
	source := v.src.Loader().Source
	for rec, err := range source.Read(ctx, events.Range{Subject: v.s.Subject, Upto: v.s.Offset()}) {
		if err == nil && panel.Wanted(rec.Type) {
			rec, err = projector.Resolve(ctx, source, rec, sessiondir.MaxValue(v.src))
		}
		if err != nil {
			return nil, err
		}
		out.Apply(projector.Decode(rec))
	}
	for _, r := range out.Rows() {
		out.rows = append(out.rows, row{sessionRow: sessionRow{summary: r.Summary, content: r.Content, marker: r.Marker, id: r.Run}, live: r.Live,
			run: v.s.Ledger.Run(events.RunRef{Kind: panel.Kind, ID: r.Run})})
	}
	*v.known = out
	return v.known, nil
}

// metadata renders session_metadata.json.
func (v view) metadata(ctx context.Context) ([]byte, error) {
	s, err := v.records(ctx)
	if err != nil {
		return nil, err
	}
	return s.Metadata(), nil
}

// content renders session_content.json, nil if it would be empty.
func (v view) content(ctx context.Context, known bool) ([]byte, error) {
	s, err := v.records(ctx)
	if err != nil {
		return nil, err
	}
	data, ok := s.Content()
	if !ok && !known {
		return nil, nil
	}
	return data, nil
}

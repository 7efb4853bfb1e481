package erratadir

import (
	"bytes"
	"context"
	"io"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
	"github.com/tallylog/tally/stores/internal/foreign"
)

// view renders the files of a session.
type view struct {
	src   formats.Source
	s     *projector.Session
	known *shown // read before; its view is nil: not yet
}

func newView(src formats.Source, s *projector.Session) view {
	return view{src: src, s: s, known: new(shown)}
}

// file is a file of a session: where its bytes come from.
type file struct {
	path   string
	format events.FileFormat
	known  bool   // the session has a format for it
	whole  bool   // the document has the bytes
	moved  bool   // a document has what it was, but the state has moved on
	data   []byte // what the state renders
	there  bool   // it renders something
}

func (f *file) sum() string {
	if !f.there {
		return foreign.Nothing
	}
	return foreign.SumOf(f.data)
}

func (f *file) way() formats.Way {
	if f.whole {
		return formats.Whole
	}
	return formats.Exact
}

func (f *file) mode() int64 {
	if !f.known {
		return privateMode
	}
	return f.format.Mode
}

// paths lists the files that the session may have, sorted.
func (v view) paths() []string {
	list := []string{metadataName, contentName, checkpointName, recipeName}
	if own, ok := beside[v.s.Subject.ID]; ok {
		list = []string{own}
	}
	for key := range v.s.Ledger.Formats {
		list = append(list, foreign.PathOf(key))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// file decides where the bytes of a path come from. ok is false if the session has
// no such file.
func (v view) file(ctx context.Context, path string) (f file, ok bool, err error) {
	f.path = path
	f.format, f.known = v.s.Ledger.Formats[foreign.KeyOf(path)]
	if f.data, f.there, err = v.render(ctx, path, f.format, f.known); err != nil {
		return f, false, err
	}
	asKept := f.format.Of == "" || f.format.Of == f.sum()
	switch {
	case f.format.Gone && asKept:
		return f, false, nil
	case f.format.Doc != "" && asKept:
		f.whole = true
		return f, true, nil
	}
	f.moved = f.format.Doc != ""
	f.known = f.known && !f.format.Gone // what came after it was gone was never in a folder
	return f, f.there, nil
}

// write writes the bytes of a file.
func (v view) write(ctx context.Context, f file, w io.Writer) error {
	if !f.whole {
		_, err := w.Write(f.data)
		return err
	}
	doc, at, err := f.format.Doc.Parse(v.s.Subject.Namespace)
	if err != nil {
		return err
	}
	return foreign.WriteDocument(ctx, v.src, doc, at, w)
}

// render gives a file as the state has it, whatever document is kept beside it,
// and whether there is one.
func (v view) render(ctx context.Context, path string, format events.FileFormat, known bool) (data []byte, there bool, err error) {
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
		return nil, false, err
	}
	return foreign.SpellJSON(data, format), true, nil
}

// prompts renders prompt_history.jsonl.
func (v view) prompts(format events.FileFormat, known bool) ([]byte, bool, error) {
	th := v.s.Threads[promptsID]
	if th == nil && (!known || format.Gone) {
		return nil, false, nil
	}
	if !known {
		format.FinalNewline = true
	}
	var b bytes.Buffer
	out := foreign.LinesWriter{W: &b, Format: format}
	turns := v.s.Threads.Turns(promptsID)
	for i := range turns {
		if err := out.Turn(panel.RawOf(&turns[i]), false); err != nil {
			return nil, false, err
		}
	}
	err := out.End()
	return b.Bytes(), true, err
}

// row is a run or a marker as the state has it.
type row struct {
	entry
	live bool // no import brought it
	run  *projector.Run
}

// shown is what the session's records show.
type shown struct {
	*panel.View
	rows []row
}

// records reads what the session's records show.
func (v view) records(ctx context.Context) (*shown, error) {
	if v.known.View != nil {
		return v.known, nil
	}
	out := shown{View: panel.New(v.s)}
	source := v.src.Loader().Source
	for rec, err := range source.Read(ctx, events.Range{Subject: v.s.Subject, Upto: v.s.Offset()}) {
		if err == nil && panel.Wanted(rec.Type) {
			rec, err = projector.Resolve(ctx, source, rec, foreign.MaxValue(v.src))
		}
		if err != nil {
			return nil, err
		}
		out.Apply(projector.Decode(rec))
	}
	for _, r := range out.Rows() {
		out.rows = append(out.rows, row{entry: entry{summary: r.Summary, content: r.Content, marker: r.Marker, id: r.Run}, live: r.Live,
			run: v.s.Ledger.Run(events.RunRef{Kind: panel.Kind, ID: r.Run})})
	}
	*v.known = out
	return v.known, nil
}

// rows lists the runs and markers of the session, in the order of the log.
func (v view) rows(ctx context.Context) ([]row, error) {
	s, err := v.records(ctx)
	if err != nil {
		return nil, err
	}
	return s.rows, nil
}

// metadata renders session_metadata.json.
func (v view) metadata(ctx context.Context) ([]byte, error) {
	s, err := v.records(ctx)
	if err != nil {
		return nil, err
	}
	return s.Metadata(), nil
}

// content renders session_content.json, nil if there is nothing for it.
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

package erratadir

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/foreign"
)

// view renders the files of a session.
type view struct {
	src   formats.Source
	s     *projector.Session
	known *[]row // read before; nil: not yet
}

func newView(src formats.Source, s *projector.Session) view {
	return view{src: src, s: s, known: new([]row)}
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
			data = v.histories()
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
		if err := out.Turn(rawOf(&turns[i]), false); err != nil {
			return nil, false, err
		}
	}
	err := out.End()
	return b.Bytes(), true, err
}

// rawOf gives a turn as JSON, also where its producer gave other bytes.
func rawOf(t *projector.Turn) events.Raw {
	if t.Raw != nil {
		return t.Raw
	}
	return []byte(`{"bytes":"` + base64.StdEncoding.EncodeToString(t.Bytes) + `"}`)
}

// histories renders the turns of all models, sorted by name.
func (v view) histories() []byte {
	var m rawjson.Members
	for _, name := range slices.Sorted(maps.Keys(v.s.Threads)) {
		turns := v.s.Threads.Turns(name)
		list := make([]events.Raw, len(turns))
		for i := range turns {
			list[i] = rawOf(&turns[i])
		}
		value := events.Raw(appendArray(nil, list))
		if meta := v.s.Threads[name].Meta; len(list) == 0 && string(meta) == "null" {
			value = meta
		}
		m = append(m, rawjson.Member{Name: name, Value: value})
	}
	return appendMembers(nil, m)
}

// row is a run or a marker as the state has it.
type row struct {
	entry
	live bool // no import brought it
	at   events.Offset
	run  *projector.Run

	withdrawn bool
}

// rows lists the runs and markers of the session, in the order of the log.
func (v view) rows(ctx context.Context) ([]row, error) {
	if *v.known == nil {
		list, err := v.readRows(ctx)
		if err != nil {
			return nil, err
		}
		*v.known = list
	}
	return *v.known, nil
}

func (v view) readRows(ctx context.Context) ([]row, error) {
	list := []row{}
	for _, r := range v.s.Ledger.Runs {
		if r.Kind != kindRun || r.Last() == nil {
			continue
		}
		first, err := v.src.Loader().Source.Record(ctx, r.Results[0].Offset)
		if err != nil {
			return nil, err
		}
		last := first
		if len(r.Results) > 1 {
			if last, err = v.src.Loader().Source.Record(ctx, r.Last().Offset); err != nil {
				return nil, err
			}
		}
		e, err := v.entryOf(ctx, r, last)
		if err != nil {
			return nil, err
		}
		list = append(list, row{entry: e, live: first.Source != EventSource, at: first.Offset, run: r, withdrawn: v.s.Withdrawn(r.At)})
	}
	markers, err := v.markers(ctx, list)
	if err != nil {
		return nil, err
	}
	list = append(list, markers...)
	slices.SortStableFunc(list, func(a, b row) int { return cmp.Compare(a.at, b.at) })
	return list, nil
}

// entryOf reads the result of a run from its record.
func (v view) entryOf(ctx context.Context, r *projector.Run, rec events.Record) (entry, error) {
	e := entry{id: r.ID}
	rec, err := projector.Resolve(ctx, v.src.Loader().Source, rec, foreign.MaxValue(v.src))
	if err != nil {
		return e, err
	}
	if p, ok := projector.Decode(rec).Payload.(*events.RunFinished); ok {
		m := object(p.Result)
		e.summary, _ = m.Get("summary")
		e.content, _ = m.Get("content")
	}
	return e, nil
}

// markers gives the markers of rewinds: as they were imported, or as the original
// would write them, one for each run that a rewind in effect withdrew.
func (v view) markers(ctx context.Context, runs []row) ([]row, error) {
	var list []row
	undone := make(map[events.Offset]bool)
	for _, r := range slices.Backward(v.s.Ledger.Rewinds) {
		if r.Undoes != 0 && !undone[r.Offset] {
			undone[r.Undoes] = true
		}
	}
	marked := make(map[string]bool)
	for _, r := range v.s.Ledger.Rewinds {
		rec, err := v.src.Loader().Source.Record(ctx, r.Offset)
		if err != nil {
			return nil, err
		}
		p, ok := projector.Decode(rec).Payload.(*events.SessionRewound)
		switch {
		case ok && r.Reason == markerReason && p.Raw != nil:
			list = append(list, row{entry: entry{summary: p.Raw, marker: true}, at: r.Offset})
		case r.Undoes != 0 || undone[r.Offset]:
		default:
			for _, run := range slices.Backward(runs) {
				if run.at > r.To && run.at < r.Offset && !marked[run.id] {
					marked[run.id] = true
					list = append(list, row{entry: entry{summary: markerOf(rec, run), marker: true}, at: r.Offset, live: true})
				}
			}
		}
	}
	return list, nil
}

// markerOf writes the marker of a run that a rewind withdrew.
func markerOf(rec events.Record, run row) events.Raw {
	at := goString(nil, cmp.Or(rec.Time, rec.Recorded).Format(time.RFC3339Nano))
	return appendMembers(nil, rawjson.Members{{Name: "timestamp", Value: at},
		{Name: "prompt_hash", Value: goString(nil, text(object(run.summary), "prompt_hash"))}, {Name: "prompt_preview", Value: events.Raw(`""`)},
		{Name: "models", Value: events.Raw("null")}, {Name: "type", Value: events.Raw(`"rewind"`)}})
}

// noted gives the summary of a run with what a person said of it since.
func (r row) noted() events.Raw {
	m := object(r.summary)
	if r.run == nil || m == nil {
		return r.summary
	}
	changed := false
	for _, f := range []struct{ name, now string }{{"selected", r.run.Selected}, {"rating", r.run.Rating}, {"note", r.note()}} {
		if f.now != "" && f.now != text(m, f.name) {
			m, changed = with(m, summaryOrder, f.name, goString(nil, f.now)), true
		}
	}
	if now := r.run.AppliedFiles; len(now) > 0 && !slices.Equal(now, texts(m, "applied_files")) {
		list := make([]events.Raw, len(now))
		for i, name := range now {
			list[i] = goString(nil, name)
		}
		m, changed = with(m, summaryOrder, "applied_files", appendArray(nil, list)), true
	}
	if !changed {
		return r.summary
	}
	return appendMembers(nil, m)
}

// note gives the note of a run. The original marks a withdrawn one there.
func (r row) note() string {
	said := text(object(r.summary), "note")
	note := cmp.Or(r.run.Note, said)
	switch {
	case !r.withdrawn || strings.HasPrefix(note, rewoundNote):
		return note
	case note == "":
		return rewoundNote
	}
	return rewoundNote + " " + note
}

// metadata renders session_metadata.json.
func (v view) metadata(ctx context.Context) ([]byte, error) {
	rows, err := v.rows(ctx)
	if err != nil {
		return nil, err
	}
	m, err := v.head(ctx)
	if err != nil {
		return nil, err
	}
	var list []events.Raw
	for _, r := range rows {
		if r.live && !r.marker {
			m = grown(m, r)
		}
		if r.summary != nil {
			list = append(list, r.noted())
		}
	}
	if len(list) > 0 {
		m = with(m, metadataOrder, "runs", appendArray(nil, list))
	}
	return appendMembers(nil, m), nil
}

// head gives what session_metadata.json says beside the runs: as it was imported
// last, else what the session itself says.
func (v view) head(ctx context.Context) (rawjson.Members, error) {
	raw, err := foreign.Imported(ctx, v.src, v.s)
	if err != nil {
		return nil, err
	}
	if m := object(raw); m != nil {
		return m, nil
	}
	at := v.s.Ledger.CreatedAt
	if at == "" {
		at = v.s.Ledger.LastAt
	}
	created := events.Raw(goString(nil, string(at)))
	m := rawjson.Members{{Name: "id", Value: goString(nil, v.s.Subject.ID)}, {Name: "created_at", Value: created}, {Name: "last_active_at", Value: created}}
	if raw, ok := v.s.Ledger.Fields.Get("models"); ok {
		m = append(m, rawjson.Member{Name: "models", Value: raw})
	}
	return append(m, rawjson.Member{Name: "prompt_count", Value: events.Raw("0")}, rawjson.Member{Name: "runs", Value: events.Raw("null")}), nil
}

// grown counts a run that came after what the session says of itself.
func grown(m rawjson.Members, r row) rawjson.Members {
	summary := object(r.summary)
	if at, ok := summary.Get("timestamp"); ok {
		m = with(m, metadataOrder, "last_active_at", at)
	}
	prompt := events.Raw(goString(nil, preview(text(object(r.content), "prompt"))))
	if text(m, "first_prompt") == "" && len(prompt) > 2 {
		m = with(m, metadataOrder, "first_prompt", prompt)
	}
	if len(prompt) > 2 {
		m = with(m, metadataOrder, "last_prompt", prompt)
	}
	n, _ := countOf(m, "prompt_count")
	return with(m, metadataOrder, "prompt_count", strconv.AppendInt(nil, n+1, 10))
}

// preview cuts a prompt to 120 runes.
func preview(prompt string) string {
	if runes := []rune(prompt); len(runes) > 120 {
		return string(runes[:120])
	}
	return prompt
}

// content renders session_content.json, nil if there is nothing for it.
func (v view) content(ctx context.Context, known bool) ([]byte, error) {
	rows, err := v.rows(ctx)
	if err != nil {
		return nil, err
	}
	var list []events.Raw
	for _, r := range rows {
		switch {
		case r.content != nil:
			list = append(list, r.content)
		case r.marker && r.live: // so that the n-th content is that of the n-th summary
			list = append(list, events.Raw(`{"prompt":"","models":null}`))
		}
	}
	raw, said := v.s.Ledger.Fields.Get(fieldContent)
	m := object(raw)
	if !known && !said && len(list) == 0 && len(v.s.Threads) == 0 {
		return nil, nil
	}
	if !said {
		m = usualContent(v.s.Subject.ID, len(list))
	}
	if len(list) > 0 {
		m = with(m, contentOrder, "runs", appendArray(nil, list))
	}
	if len(v.s.Threads) > 0 {
		m = with(m, contentOrder, "histories", v.histories())
	}
	return appendMembers(nil, m), nil
}

// usualContent is what surrounds runs and histories as the original writes it.
func usualContent(id string, runs int) rawjson.Members {
	if runs == 0 {
		return rawjson.Members{{Name: "runs", Value: events.Raw("null")}}
	}
	return rawjson.Members{{Name: "session_id", Value: goString(nil, id)}, {Name: "runs", Value: events.Raw("[]")}}
}

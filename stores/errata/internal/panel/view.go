package panel

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// Row is a run of a panel, or the marker of a rewind.
type Row struct {
	Run     string     // its id; for a marker, the id of the withdrawn run
	Summary events.Raw // as recorded; nil: not in session_metadata.json
	Content events.Raw // as recorded; nil: not in session_content.json
	Offset  events.Offset
	Marker  bool
	Live    bool // it was not imported

	Withdrawn bool   // the run was rewound, or its answer was based on rewound turns
	Rewound   bool   // it is withdrawn, or a marker in an imported file refers to it
	Rated     string // the model that was rated bad

	// Malformed is set if the run's result does not have the form of a panel's.
	Malformed error

	hash string // of the prompt, from the summary
	said annotation
}

// annotation has the user's annotations of a run since its summary was recorded. A nil member was not annotated.
type annotation struct {
	selected, rating, note *string
	appliedFiles           []string
}

// View collects the runs and markers from the records of a session. Apply the records in the order of the log, then
// read the results.
type View struct {
	head  *projector.Session
	gone  map[events.Offset]bool // rewinds that were undone
	stale map[events.Offset]bool // records that are stale
	rows  []Row
	runs  map[string]int         // run id -> index of its row
	said  map[string]*annotation // by run id

	born       events.Raw    // the newest recorded members of session_metadata.json beside the runs
	bornAt     events.Offset // offset of their record
	bornInFile bool          // they were imported
}

// New returns a view for a loaded session.
func New(head *projector.Session) *View {
	v := &View{head: head, gone: make(map[events.Offset]bool), stale: make(map[events.Offset]bool),
		runs: make(map[string]int), said: make(map[string]*annotation)}
	for _, at := range head.History.Stale() {
		v.stale[at] = true
	}
	for _, r := range slices.Backward(head.Ledger.Rewinds) {
		if r.Undoes != 0 && !v.gone[r.Offset] {
			v.gone[r.Undoes] = true
		}
	}
	return v
}

// Assume sets the members of session_metadata.json beside the runs, for a session without any.
func (v *View) Assume(metadata events.Raw) {
	if v.head.Ledger.Created == 0 && v.born == nil {
		v.born = metadata
	}
}

// Wanted reports whether a view uses the data of events of a type.
func Wanted(typ string) bool {
	switch typ {
	case events.TypeRunFinished, events.TypeRunAnnotated, events.TypeSessionCreated, events.TypeSessionUpdated, events.TypeSessionRewound:
		return true
	}
	return false
}

// Apply applies the session's next record.
func (v *View) Apply(f projector.Fact) {
	switch p := f.Payload.(type) {
	case *events.SessionCreated:
		if f.Offset == v.head.Ledger.Created && p.Raw != nil {
			v.born, v.bornAt, v.bornInFile = p.Raw, f.Offset, f.Source == ImportSource
		}
	case *events.SessionUpdated:
		if p.Raw != nil { // a repeated import
			v.born, v.bornAt, v.bornInFile = p.Raw, f.Offset, true
		}
	case *events.RunFinished:
		v.finished(f)
	case *events.RunAnnotated:
		v.annotated(f, p)
	case *events.SessionRewound:
		v.rewound(f, p)
	}
}

// RowOf returns the run of a result's record. ok is false if it is not a panel's.
func RowOf(f projector.Fact) (row Row, ok bool) {
	p, ok := f.Payload.(*events.RunFinished)
	if !ok || p.Run.Kind != Kind {
		return Row{}, false
	}
	row = Row{Run: p.Run.ID, Offset: f.Offset, Live: f.Source != ImportSource}
	m, err := rawjson.Object(p.Result)
	if err != nil {
		row.Malformed = &events.InvalidError{Field: "result", Reason: fmt.Sprintf("of the record at %v: %v", f.Offset, err)}
	}
	row.Summary, _ = m.Get("summary")
	row.Content, _ = m.Get("content")
	row.hash = hashIn(row.Summary)
	return row, true
}

func hashIn(summary events.Raw) string { return Object(summary).Text("prompt_hash") }

// finished adds a run. A newer version takes the row of the first one.
func (v *View) finished(f projector.Fact) {
	row, ok := RowOf(f)
	if !ok {
		return
	}
	if !row.Live {
		delete(v.said, row.Run) // the file has it
	}
	if i, again := v.runs[row.Run]; again {
		row.Offset, row.Live = v.rows[i].Offset, v.rows[i].Live
		v.rows[i] = row
		return
	}
	v.runs[row.Run] = len(v.rows)
	v.rows = append(v.rows, row)
	if v.stale[f.Offset] {
		v.mark(f, row.hash, row.Run)
	}
}

// annotated keeps the user's newest annotation. Annotations of an import are part of its summary.
func (v *View) annotated(f projector.Fact, p *events.RunAnnotated) {
	if p.Run.Kind != Kind {
		return
	}
	s := v.said[p.Run.ID]
	if s == nil {
		s = &annotation{}
		v.said[p.Run.ID] = s
	}
	brought := f.Source == ImportSource
	keep := func(now *string, kept **string) {
		if now != nil && brought {
			*kept = nil
		} else if now != nil {
			*kept = now
		}
	}
	keep(p.Selected, &s.selected)
	keep(p.Rating, &s.rating)
	keep(p.Note, &s.note)
	if p.AppliedFiles != nil && brought {
		s.appliedFiles = nil
	} else if p.AppliedFiles != nil {
		s.appliedFiles = p.AppliedFiles
	}
}

// rewound adds the markers of a rewind that is in effect, so that a program that counts runs by their prompts, as the
// original does, omits the withdrawn ones. It adds one marker for each stack entry that the rewind used up, and one
// for each withdrawn run without an entry, the newest first.
func (v *View) rewound(f projector.Fact, p *events.SessionRewound) {
	if p.Reason == MarkerReason && p.Raw != nil {
		v.rows = append(v.rows, Row{Summary: p.Raw, Offset: f.Offset, Marker: true, hash: hashIn(p.Raw)})
		return
	}
	i := slices.IndexFunc(v.head.Ledger.Rewinds, func(r projector.Rewind) bool { return r.Offset == f.Offset })
	if i < 0 || p.Undoes != 0 || v.gone[f.Offset] {
		return
	}
	type marker struct {
		at        events.Offset
		hash, run string
	}
	var markers []marker
	runs := v.withdrawnBy(f.Offset)
	for _, e := range slices.Backward(UsedUp(v.head.Ledger, v.head.Ledger.Rewinds[i])) {
		c := v.head.Ledger.Checkpoint(events.CheckpointRewind, e.ID)
		run := runOf(c, e, &runs)
		markers = append(markers, marker{max(e.At, run.Offset), PromptHash(c.Prompt), run.Run})
	}
	for _, run := range slices.Backward(runs) {
		markers = append(markers, marker{run.Offset, run.hash, run.Run})
	}
	slices.SortStableFunc(markers, func(a, b marker) int { return cmp.Compare(b.at, a.at) })
	for _, m := range markers {
		v.mark(f, m.hash, m.run)
	}
}

// UsedUp returns the entries that a rewind removes from the stack, the oldest first.
func UsedUp(l *projector.Ledger, r projector.Rewind) []projector.StackEntry {
	stack := l.StackBefore(r)
	if r.Checkpoint != "" {
		if i := slices.IndexFunc(stack, func(e projector.StackEntry) bool { return e.ID == r.Checkpoint }); i >= 0 {
			return stack[i:]
		}
		return nil
	}
	return slices.DeleteFunc(stack, func(e projector.StackEntry) bool { return e.At < r.To })
}

// runOf returns the run of an entry: the one that it names, or the oldest withdrawn run after its offset. It removes
// the run from the list.
func runOf(c *projector.Checkpoint, e projector.StackEntry, runs *[]Row) Row {
	i := slices.IndexFunc(*runs, func(r Row) bool {
		if c.Run != nil {
			return r.Run == c.Run.ID
		}
		return r.Offset > e.At
	})
	switch {
	case i >= 0:
		row := (*runs)[i]
		*runs = slices.Delete(*runs, i, i+1)
		return row
	case c.Run != nil:
		return Row{Run: c.Run.ID}
	}
	return Row{}
}

// withdrawnBy returns the runs that the rewind at an offset withdrew, the oldest first.
func (v *View) withdrawnBy(at events.Offset) []Row {
	before, after := v.head.History.Live(at-1), v.head.History.Live(at)
	var rows []Row
	for _, row := range v.rows {
		if !row.Marker && within(before, row.Offset) && !within(after, row.Offset) {
			rows = append(rows, row)
		}
	}
	return rows
}

func within(list []projector.Interval, at events.Offset) bool {
	return slices.ContainsFunc(list, func(i projector.Interval) bool { return i.From <= at && at <= i.To })
}

// mark adds a marker: a short summary and an empty content, so that the two lists have equal lengths.
func (v *View) mark(f projector.Fact, hash, run string) {
	summary := JSON(struct {
		Timestamp     string   `json:"timestamp"`
		PromptHash    string   `json:"prompt_hash"`
		PromptPreview string   `json:"prompt_preview"`
		Models        []string `json:"models"`
		Type          string   `json:"type"`
	}{Timestamp: cmp.Or(f.Time, f.Recorded).Format(time.RFC3339Nano), PromptHash: hash, Type: MarkerType})
	v.rows = append(v.rows, Row{Run: run, Summary: summary, Content: events.Raw(`{"prompt":"","models":null}`),
		Offset: f.Offset, Marker: true, Live: true, hash: hash})
}

// Rows returns the runs and markers, the oldest first. The caller has applied every record.
func (v *View) Rows() []Row {
	for i := range v.rows {
		row := &v.rows[i]
		row.Rewound = false
		run := v.head.Ledger.Run(events.RunRef{Kind: Kind, ID: row.Run})
		if row.Marker || run == nil {
			continue
		}
		if s := v.said[row.Run]; s != nil {
			row.said = *s
		}
		for _, tag := range run.Tags {
			if model, ok := strings.CutPrefix(tag, RatedTag); ok && run.Rating == "bad" {
				row.Rated = model
			}
		}
		row.Withdrawn = v.head.Withdrawn(run.At)
	}
	v.pairImported()
	return v.rows
}

// pairImported finds the runs that imported markers refer to. Such a marker has only a prompt's hash: as in the
// original, it refers to the newest run of that prompt before it.
func (v *View) pairImported() {
	for i := range v.rows {
		row := &v.rows[i]
		row.Rewound = row.Withdrawn
		if !row.Marker || row.Live {
			continue
		}
		for j := i - 1; j >= 0; j-- {
			if run := &v.rows[j]; !run.Marker && !run.Rewound && run.hash == row.hash {
				run.Rewound, row.Run = true, run.Run
				break
			}
		}
	}
}

// Shown returns the row's summary in the form of session_metadata.json: with the user's annotations since, and with a
// mark if the run is withdrawn.
func (r *Row) Shown() events.Raw {
	m := Object(r.Summary)
	if r.Marker || m == nil {
		return r.Summary
	}
	note := r.said.note
	if r.Withdrawn {
		was := m.Text("note")
		if note != nil {
			was = *note
		}
		if was == "" {
			was = rewoundNote
		} else if !strings.HasPrefix(was, rewoundNote) {
			was = rewoundNote + " " + was
		}
		note = &was
	}
	changed := false
	for _, x := range []struct {
		name string
		now  *string
	}{{"selected", r.said.selected}, {"rating", r.said.rating}, {"note", note}} {
		switch {
		case x.now == nil || *x.now == m.Text(x.name):
			continue
		case *x.now == "":
			m = without(m, x.name)
		default:
			m = With(m, SummaryOrder, x.name, JSON(*x.now))
		}
		changed = true
	}
	if now := r.said.appliedFiles; len(now) > 0 && !slices.Equal(now, Texts(m, "applied_files")) {
		m, changed = With(m, SummaryOrder, "applied_files", JSON(now)), true
	}
	if !changed {
		return r.Summary
	}
	return ObjectJSON(m)
}

// Head returns the members of session_metadata.json beside the runs: the newest recorded ones, updated by the runs
// since.
func (v *View) Head() rawjson.Members {
	m := v.given()
	for i := range v.rows {
		if row := &v.rows[i]; !row.Marker && row.Live && row.Offset > v.bornAt {
			m = grown(m, row)
		}
	}
	return m
}

// given returns the session's properties without its runs.
func (v *View) given() rawjson.Members {
	l := v.head.Ledger
	m := Object(v.born)
	if m == nil {
		at := cmp.Or(l.CreatedAt, l.LastAt)
		created := JSON(string(at))
		if t, ok := at.Time(); ok {
			created = JSON(t.Format(time.RFC3339Nano)) // in the original's format
		}
		m = rawjson.Members{{Name: "created_at", Value: created}, {Name: "last_active_at", Value: created},
			{Name: "prompt_count", Value: events.Raw("0")}, {Name: "runs", Value: events.Raw("null")}}
	}
	if !v.bornInFile && m.Text("id") == "" {
		m = With(m, MetadataOrder, "id", JSON(v.head.Subject.ID))
	}
	// The models of the last start or resume count.
	if raw, ok := l.Fields.Get("models"); ok {
		now := With(m, MetadataOrder, "models", raw)
		list, _ := List(now, "models")
		switch {
		case slices.Equal(Texts(now, "models"), Texts(m, "models")):
		case len(list) == 0:
			m = without(m, "models")
		default:
			m = now
		}
	}
	return m
}

// grown updates the members for a run after their record.
func grown(m rawjson.Members, r *Row) rawjson.Members {
	if at, ok := Object(r.Summary).Get("timestamp"); ok {
		m = With(m, MetadataOrder, "last_active_at", at)
	}
	if r.Content != nil {
		prompt := Cut(Object(r.Content).Text("prompt"))
		if prompt == "" {
			m = without(m, "last_prompt")
		} else {
			if m.Text("first_prompt") == "" {
				m = With(m, MetadataOrder, "first_prompt", JSON(prompt))
			}
			m = With(m, MetadataOrder, "last_prompt", JSON(prompt))
		}
	}
	n, _ := CountOf(m, "prompt_count")
	return With(m, MetadataOrder, "prompt_count", strconv.AppendInt(nil, n+1, 10))
}

// Metadata returns the content of session_metadata.json.
func (v *View) Metadata() events.Raw {
	rows, m := v.Rows(), v.Head()
	var list []events.Raw
	for i := range rows {
		if rows[i].Summary != nil {
			list = append(list, rows[i].Shown())
		}
	}
	if len(list) > 0 {
		m = With(m, MetadataOrder, "runs", rawjson.AppendArray(nil, list))
	}
	return ObjectJSON(m)
}

// Content returns the content of session_content.json. ok is false if the file would be empty.
func (v *View) Content() (data events.Raw, ok bool) {
	var list []events.Raw
	for _, r := range v.Rows() {
		if r.Content != nil {
			list = append(list, r.Content)
		}
	}
	raw, said := v.head.Ledger.Fields.Get(FieldContent)
	m := Object(raw)
	if !said {
		m = UsualContent(v.head.Subject.ID, len(list))
	}
	if len(list) > 0 {
		m = With(m, ContentOrder, "runs", rawjson.AppendArray(nil, list))
	}
	if len(v.head.Threads) > 0 {
		m = With(m, ContentOrder, "histories", Histories(v.head.Threads))
	}
	return ObjectJSON(m), said || len(list) > 0 || len(v.head.Threads) > 0
}

// Histories returns the turns of all models, sorted by name.
func Histories(threads projector.Threads) events.Raw {
	var m rawjson.Members
	for _, name := range slices.Sorted(maps.Keys(threads)) {
		turns := threads.Turns(name)
		list := make([]events.Raw, len(turns))
		for i := range turns {
			list[i] = RawOf(&turns[i])
		}
		value := rawjson.AppendArray(nil, list)
		if meta := threads[name].Meta; len(list) == 0 && string(meta) == "null" {
			value = meta
		}
		m = append(m, rawjson.Member{Name: name, Value: value})
	}
	return ObjectJSON(m)
}

// RawOf returns a turn as JSON, also if its producer stored other bytes.
func RawOf(t *projector.Turn) events.Raw {
	if t.Raw != nil {
		return t.Raw
	}
	return []byte(`{"bytes":"` + base64.StdEncoding.EncodeToString(t.Bytes) + `"}`)
}

// CountOf returns a member that is a whole number, 0 if it is absent or null. For any other value ok is false.
func CountOf(m rawjson.Members, name string) (n int64, ok bool) {
	raw, there := m.Get(name)
	if !there || bytes.Equal(raw, []byte("null")) {
		return 0, true
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// without returns an object without a member.
func without(m rawjson.Members, name string) rawjson.Members {
	return slices.DeleteFunc(slices.Clone(m), func(x rawjson.Member) bool { return x.Name == name })
}

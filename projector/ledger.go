package projector

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Ledger is the fold of all records of a session, live or not. Money spent stays spent, runs keep their results, and
// text that a person typed is never dropped. The ledger does not copy large raw values (results of runs, responses of
// checkpoints); the record at the offset has them.
type Ledger struct {
	Kind      string                       `json:"kind"` // from session.created, else derived from the id (events.KindOf)
	CreatedAt events.Timestamp             `json:"createdAt,omitempty"`
	Created   events.Offset                `json:"created,omitempty"` // offset of the effective session.created
	Parent    *events.Lineage              `json:"parent,omitempty"`
	Fork      *events.Fork                 `json:"fork,omitempty"`
	Fields    events.Fields                `json:"fields,omitempty"` // title, status, models ...: the last values set
	Raw       map[string]events.Offset     `json:"raw,omitempty"`    // event type -> the last record that carries the imported file
	Formats   map[string]events.FileFormat `json:"formats,omitempty"`
	Log       []LogEntry                   `json:"log,omitempty"`

	Runs        []*Run        `json:"runs,omitempty"`        // by first appearance
	Checkpoints []*Checkpoint `json:"checkpoints,omitempty"` // by first appearance
	Stack       []StackEntry  `json:"stack,omitempty"`       // of rewind checkpoints, oldest first
	Moves       []StackMove   `json:"moves,omitempty"`       // of the stack, oldest first
	Rewinds     []Rewind      `json:"rewinds,omitempty"`
	Costs       []Cost        `json:"costs,omitempty"`      // effective costs, ordered by Cost.CountsAt
	Superseded  []Cost        `json:"superseded,omitempty"` // superseded by another cost with the same response; in log order

	Rejected []Rejected      `json:"void,omitempty"`
	Stale    []events.Offset `json:"late,omitempty"`
	Unknown  []Foreign       `json:"unknown,omitempty"` // types of other vocabularies, with counts

	Records int              `json:"records"`
	LastID  string           `json:"lastId,omitempty"` // id of the last record; a snapshot is recognised by it
	LastAt  events.Timestamp `json:"lastAt,omitempty"` // the latest time of any record with a time of its own, in UTC with milliseconds

	LastGuessed bool `json:"lastGuessed,omitempty"` // no record has its own time: LastAt is that of an import

	// Indexes of runs, checkpoints and responses. They are nil in a ledger that was not made by index.
	runs        map[events.RunRef]*Run
	checkpoints map[checkpointRef]*Checkpoint
	responses   map[paidFor]*response
}

// LogEntry is an entry of the session's own log.
type LogEntry struct {
	Offset events.Offset `json:"offset"`
	events.SessionLog
	Reason string `json:"reason,omitempty"`
}

// Run is one execution with an outcome. It begins with the first event that names it.
type Run struct {
	Kind         string           `json:"kind"`
	ID           string           `json:"id"`
	At           events.Offset    `json:"at"`                // the first event that names it
	Created      events.Offset    `json:"created,omitempty"` // its run.created, if any
	CreatedAt    events.Timestamp `json:"createdAt,omitempty"`
	Models       []string         `json:"models,omitempty"`
	Owner        string           `json:"owner,omitempty"`
	Parent       *events.Lineage  `json:"parent,omitempty"`
	Template     events.DocRef    `json:"template,omitempty"`
	Setting      events.Offset    `json:"setting,omitempty"` // the record with its setting
	After        []events.RunRef  `json:"after,omitempty"`   // runs that must be finished first
	DueAt        events.Timestamp `json:"dueAt,omitempty"`   // earliest start
	State        string           `json:"state,omitempty"`
	Starts       int              `json:"starts,omitempty"`
	Claim        events.Offset    `json:"claim,omitempty"` // its newest run.started
	Worker       string           `json:"worker,omitempty"`
	Attempt      int64            `json:"attempt,omitempty"`
	LeaseUntil   int64            `json:"leaseUntil,omitempty"` // Unix milliseconds; 0: no lease, or released
	Fenced       []events.Offset  `json:"fenced,omitempty"`     // events of a claim after another claim had replaced it: without effect
	Progress     int              `json:"progress,omitempty"`   // number of run.progressed events
	Results      []Result         `json:"results,omitempty"`    // versions, oldest first
	Note         string           `json:"note,omitempty"`
	Selected     string           `json:"selected,omitempty"`
	Rating       string           `json:"rating,omitempty"`
	AppliedFiles []string         `json:"appliedFiles,omitempty"`
	Tags         []string         `json:"tags,omitempty"`
	TouchedAt    events.Timestamp `json:"touchedAt,omitempty"`
}

// Ref is the run's identity.
func (r *Run) Ref() events.RunRef { return events.RunRef{Kind: r.Kind, ID: r.ID} }

// Last returns the newest result, or nil.
func (r *Run) Last() *Result {
	if len(r.Results) == 0 {
		return nil
	}
	return &r.Results[len(r.Results)-1]
}

// Result is one version of a run's outcome. The record at Offset has the raw result.
type Result struct {
	Offset     events.Offset    `json:"offset"`
	Outcome    string           `json:"outcome"`
	Schema     string           `json:"schema,omitempty"`
	FinishedAt events.Timestamp `json:"finishedAt,omitempty"`
	Size       int              `json:"size"` // bytes of the raw result
	Judged     *events.Judged   `json:"judged,omitempty"`
}

// Checkpoint is a point to which the session can return.
type Checkpoint struct {
	ID      string          `json:"id"`
	Kind    string          `json:"kind"`
	At      events.Offset   `json:"at"`       // the point
	Made    events.Offset   `json:"made"`     // the event that created it
	Saved   []events.Offset `json:"versions"` // all versions, oldest first
	Run     *events.RunRef  `json:"run,omitempty"`
	Step    int64           `json:"step,omitempty"`
	Status  string          `json:"status,omitempty"`
	Prompt  string          `json:"prompt,omitempty"`
	Parent  string          `json:"parent,omitempty"`
	Cleared bool            `json:"cleared,omitempty"`
}

// StackEntry is a rewind checkpoint that is still usable.
type StackEntry struct {
	ID string        `json:"id"`
	At events.Offset `json:"at"`
}

// Rewind is one move of the head.
type Rewind struct {
	Offset     events.Offset `json:"offset"`
	To         events.Offset `json:"to"`
	Undoes     events.Offset `json:"undoes,omitempty"`
	Checkpoint string        `json:"checkpoint,omitempty"`
	Reason     string        `json:"reason,omitempty"`
	Before     events.Offset `json:"before"`          // the session's last offset before it
	Moves      int           `json:"moves,omitempty"` // number of stack moves before it (see Ledger.StackBefore)
}

// Cost is one cost.accrued.
type Cost struct {
	Offset events.Offset `json:"offset"`
	// First is the offset of the first cost with the same response, if that is another cost. This cost then counts at
	// First, for the run of First. Otherwise First is 0.
	First    events.Offset    `json:"first,omitempty"`
	Time     events.Timestamp `json:"time"`
	Model    string           `json:"model"`
	USD      events.Amount    `json:"usd,omitempty"`
	Tokens   events.Tokens    `json:"tokens"`
	Terms    events.Terms     `json:"terms,omitzero"`
	Run      *events.RunRef   `json:"run,omitempty"`
	Response string           `json:"response,omitempty"`
	Purpose  string           `json:"purpose"`
	Source   string           `json:"source"`
}

// Rejected is a rejected record.
type Rejected struct {
	Offset events.Offset `json:"offset"`
	Type   string        `json:"type"`
	Reason string        `json:"reason"`
}

// rejects reports whether the record at an offset is rejected.
func (l *Ledger) rejects(at events.Offset) bool {
	_, found := slices.BinarySearchFunc(l.Rejected, at, func(r Rejected, at events.Offset) int { return cmp.Compare(r.Offset, at) })
	return found
}

// Foreign counts events of an unknown type.
type Foreign struct {
	Type  string `json:"type"`
	Count int    `json:"count"`
}

func newLedger(sub events.Subject) *Ledger {
	l := &Ledger{Kind: events.KindOf(sub.ID)}
	l.index()
	return l
}

// index builds the indexes of runs, checkpoints and responses.
func (l *Ledger) index() {
	l.runs, l.checkpoints = make(map[events.RunRef]*Run, len(l.Runs)), make(map[checkpointRef]*Checkpoint, len(l.Checkpoints))
	for _, r := range l.Runs {
		l.runs[r.Ref()] = r
	}
	for _, c := range l.Checkpoints {
		l.checkpoints[c.ref()] = c
	}
	l.responses = make(map[paidFor]*response)
}

// apply folds one record. before is the session's last offset before it. Records that History rejected stay rejected.
func (l *Ledger) apply(f Fact, v Verdict, before events.Offset) {
	l.Records++
	l.LastID = f.ID
	l.LastAt, l.LastGuessed = f.Latest(l.LastAt, l.LastGuessed)
	if v.Stale {
		l.Stale = append(l.Stale, f.Offset)
	}
	if v.Rejected != "" {
		l.Rejected = append(l.Rejected, Rejected{f.Offset, f.Type, v.Rejected})
	} else {
		l.fold(f, before)
	}
	if !events.IsKnown(f.Type) {
		l.countForeign(f.Type)
	}
}

// fold applies a payload.
func (l *Ledger) fold(f Fact, before events.Offset) {
	if ref := RunOf(f.Payload); ref != nil {
		l.run(f, *ref).Apply(f)
	}
	switch p := f.Payload.(type) {
	case *events.SessionCreated:
		l.created(f, p)
	case *events.SessionUpdated:
		l.updated(f, p)
	case *events.TurnAppended:
		l.addFormats(p.Formats)
	case *events.ThreadReplaced:
		l.addFormats(p.Formats)
	case *events.SessionRewound:
		l.rewound(f, p, before)
	case *events.RunFinished:
		l.addFormats(p.Formats)
	case *events.CheckpointSaved:
		l.checkpointSaved(f, p)
	case *events.CheckpointCleared:
		l.checkpointCleared(p)
	case *events.CostAccrued:
		l.spend(CostOf(f, p))
	}
}

func (l *Ledger) created(f Fact, p *events.SessionCreated) {
	l.Created, l.Kind, l.CreatedAt, l.Parent, l.Fork = f.Offset, p.Kind, p.CreatedAt, p.Parent, p.Fork
	for _, field := range createdFields(p) {
		if _, set := l.Fields.Get(field.Name); !set { // an earlier update has newer values
			l.set(field)
		}
	}
	l.keepRaw(f, p.Raw)
	l.addFormats(p.Formats)
}

// createdFields returns the fields of session.created that session.updated can change, under the names that
// session.updated uses.
func createdFields(p *events.SessionCreated) events.Fields {
	var list events.Fields
	add := func(name string, v any, present bool) {
		if !present {
			return
		}
		raw, err := rawjson.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("projector: %s: %v", name, err)) // a validated payload can be encoded
		}
		list = append(list, events.Field{Name: name, Value: raw})
	}
	add("title", p.Title, p.Title != "")
	add("project", p.Project, p.Project != "")
	add("cwd", p.CWD, p.CWD != "")
	add("owner", p.Owner, p.Owner != "")
	add("layer", p.Layer, p.Layer != "")
	add("models", p.Models, p.Models != nil)
	add("recipe", string(p.Recipe), p.Recipe != "")
	add("settings", p.Settings, p.Settings != nil)
	add("origin", p.Origin, p.Origin != nil)
	return list
}

func (l *Ledger) updated(f Fact, p *events.SessionUpdated) {
	for _, field := range p.Set {
		l.set(field)
	}
	if p.Log != nil {
		l.Log = append(l.Log, LogEntry{f.Offset, *p.Log, p.Reason})
	}
	l.keepRaw(f, p.Raw)
	l.addFormats(p.Formats)
}

func (l *Ledger) set(field events.Field) {
	i := slices.IndexFunc(l.Fields, func(have events.Field) bool { return have.Name == field.Name })
	switch {
	case string(field.Value) == "null":
		if i >= 0 {
			l.Fields = slices.Delete(l.Fields, i, i+1)
		}
	case i >= 0:
		l.Fields[i].Value = slices.Clone(field.Value)
	default:
		l.Fields = append(l.Fields, events.Field{Name: field.Name, Value: slices.Clone(field.Value)})
	}
}

func (l *Ledger) keepRaw(f Fact, raw events.Raw) {
	if raw == nil {
		return
	}
	if l.Raw == nil {
		l.Raw = make(map[string]events.Offset)
	}
	l.Raw[f.Type] = f.Offset
}

func (l *Ledger) addFormats(formats map[string]events.FileFormat) {
	if l.Formats == nil && len(formats) > 0 {
		l.Formats = make(map[string]events.FileFormat)
	}
	for name, format := range formats {
		l.Formats[name] = format
	}
}

func (l *Ledger) countForeign(typ string) {
	for i := range l.Unknown {
		if l.Unknown[i].Type == typ {
			l.Unknown[i].Count++
			return
		}
	}
	l.Unknown = append(l.Unknown, Foreign{typ, 1})
}

// Text returns a string field, or "" if it is not set.
func (l *Ledger) Text(name string) string {
	raw, ok := l.Fields.Get(name)
	if !ok {
		return ""
	}
	text, err := rawjson.String(raw)
	if err != nil {
		return ""
	}
	return text
}

// Origin returns the origin of an imported session, or nil.
func (l *Ledger) Origin() *events.Origin {
	raw, ok := l.Fields.Get("origin")
	if !ok {
		return nil
	}
	var o events.Origin
	if err := rawjson.Unmarshal(raw, &o); err != nil {
		return nil
	}
	return &o
}

func orOld[T any](have, old []T) []T {
	if have == nil {
		return old
	}
	return have
}

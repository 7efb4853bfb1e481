package events

import (
	"fmt"
	"strings"
)

// Kinds of sessions that tally knows; others are allowed.
const (
	KindConversation = "conversation"
	KindPanel        = "panel"
	KindAgent        = "agent"
	KindJob          = "job"
	KindHistory      = "history"
	KindInbox        = "inbox"
	KindQueue        = "queue"
	KindItem         = "item"
	KindPrompts      = "prompts"
	KindTranscript   = "transcript"
	KindFlow         = "flow"
	KindLock         = "lock"
)

// KindOf returns the kind of a session without session.created, by its id: the part before the first slash of job/42,
// else conversation.
func KindOf(id string) string {
	switch kind, _, ok := strings.Cut(id, "/"); kind {
	case KindAgent, KindJob, KindHistory, KindInbox, KindQueue, KindItem, KindFlow, KindLock:
		if ok {
			return kind
		}
	}
	return KindConversation
}

// CanRewind reports whether sessions of a kind can be rewound and forked. In other kinds a rewind would undo
// deliveries, claims or decisions, so it has no effect.
func CanRewind(kind string) bool {
	switch kind {
	case KindInbox, KindQueue, KindItem, KindFlow, KindLock:
		return false
	}
	return true
}

// SessionCreated sets the session's kind. The first one counts, a second is rejected. A session exists from its first
// event, whatever its type.
type SessionCreated struct {
	Kind      string                `json:"kind"`
	CreatedAt Timestamp             `json:"createdAt"`
	Title     string                `json:"title,omitempty"`
	Project   string                `json:"project,omitempty"`
	CWD       string                `json:"cwd,omitempty"`
	Owner     string                `json:"owner,omitempty"`
	Layer     string                `json:"layer,omitempty"` // project or personal
	Models    []string              `json:"models,omitempty"`
	Recipe    DocRef                `json:"recipe,omitempty"`
	Settings  Raw                   `json:"settings,omitempty"`
	Parent    *Lineage              `json:"parent,omitempty"`
	Fork      *Fork                 `json:"fork,omitempty"`
	Origin    *Origin               `json:"origin,omitempty"`
	Raw       Raw                   `json:"raw,omitempty"` // the file as imported
	Formats   map[string]FileFormat `json:"formats,omitempty"`
	Unknown   Fields                `json:",unknown"`
}

// Lineage names the session or run that started this one. It inherits nothing.
type Lineage struct {
	Session    string `json:"session"`
	Offset     Offset `json:"offset,omitempty"`
	Run        string `json:"run,omitempty"`
	Checkpoint string `json:"checkpoint,omitempty"`
	ToolCall   string `json:"toolCall,omitempty"`
}

// Fork names the source of a session's threads: the threads of Session at Offset, by reference. Offset is below the
// fork's own first event.
type Fork struct {
	Session string `json:"session"`
	Offset  Offset `json:"offset"`
}

// Origin identifies the source of an imported session, so that a later import of the same folder is recognised and
// another one is refused.
type Origin struct {
	Format string `json:"format"`          // name of the layout, such as tallydir
	Root   string `json:"root"`            // name of the imported folder, under which it is exported
	Marker string `json:"marker"`          // hash of the folder's path; the path itself is not stored
	Birth  string `json:"birth,omitempty"` // the source's own record of its creation, by which a moved folder is recognised
}

func (p *SessionCreated) EventType() string { return TypeSessionCreated }

// Validate implements Payload.
func (p *SessionCreated) Validate() error {
	if p.Fork != nil && (p.Fork.Session == "" || p.Fork.Offset == 0 || p.Fork.Offset > MaxOffset) {
		return wrong("fork", "want a session and an offset from 1")
	}
	if p.Layer != "" {
		if err := oneOf("layer", p.Layer, "project", "personal"); err != nil {
			return err
		}
	}
	return first(required("kind", p.Kind), required("createdAt", string(p.CreatedAt)), p.CreatedAt.check("createdAt"),
		p.Parent.check("parent"), p.Recipe.check("recipe", false), p.Origin.check("origin"), validRaw("settings", p.Settings), validRaw("raw", p.Raw), checkFormats(p.Formats))
}

func (l *Lineage) check(path string) error {
	if l == nil {
		return nil
	}
	return first(required(path+".session", l.Session), validOffset(path+".offset", l.Offset))
}

func (o *Origin) check(path string) error {
	if o == nil {
		return nil
	}
	return first(required(path+".format", o.Format), required(path+".marker", o.Marker))
}

// SessionUpdated changes fields of the session. A field set to null is removed; unknown fields are kept.
type SessionUpdated struct {
	Set     Fields                `json:"set"`
	Reason  string                `json:"reason,omitempty"`
	Log     *SessionLog           `json:"log,omitempty"`
	Raw     Raw                   `json:"raw,omitempty"`
	Formats map[string]FileFormat `json:"formats,omitempty"`
	Unknown Fields                `json:",unknown"`
}

// SessionLog is an entry of the session's own log. All entries are kept, in order.
type SessionLog struct {
	Event   string    `json:"event"` // started, expired, ended, break or other
	Session string    `json:"session,omitempty"`
	At      Timestamp `json:"at,omitempty"`
}

func (p *SessionUpdated) EventType() string { return TypeSessionUpdated }

// Validate implements Payload.
func (p *SessionUpdated) Validate() error {
	if p.Set == nil {
		return wrong("set", "missing")
	}
	for _, f := range p.Set {
		path := "set." + f.Name
		if f.Name == "" {
			return wrong("set", "a field without a name")
		}
		if err := validRaw(path, f.Value); err != nil {
			return err
		}
		if err := checkSetField(path, f); err != nil {
			return err
		}
	}
	if p.Log != nil {
		if err := first(oneOf("log.event", p.Log.Event, "started", "expired", "ended", "break", "other"), p.Log.At.check("log.at")); err != nil {
			return err
		}
	}
	return first(validRaw("raw", p.Raw), checkFormats(p.Formats))
}

var sessionStatuses = []string{"open", "idle", "working", "waiting", "verifying", "done", "error", "running", "completed", "archived"}

// checkSetField checks the types of the known fields of set.
func checkSetField(path string, f Field) error {
	if string(f.Value) == "null" {
		return nil
	}
	switch f.Name {
	case "status":
		status, err := stringField(path, f.Value)
		return first(err, stoppedOr(path, status, sessionStatuses...))
	case "title", "description", "owner", "onEmpty", "project":
		_, err := stringField(path, f.Value)
		return err
	case "layer":
		layer, err := stringField(path, f.Value)
		return first(err, oneOf(path, layer, "project", "personal"))
	case "finishedAt", "purgedAt":
		at, err := stringField(path, f.Value)
		return first(err, Timestamp(at).check(path))
	case "recipe":
		ref, err := stringField(path, f.Value)
		return first(err, DocRef(ref).check(path, false))
	case "models", "lastActiveTools":
		var names []string
		return setInto(path, f.Value, &names)
	case "cursors":
		return checkCursors(path, f.Value)
	case "binding":
		var b Binding
		return first(setInto(path, f.Value, &b), required(path+".vendor", b.Vendor), required(path+".id", b.ID), b.ExpiresAt.check(path+".expiresAt"))
	case "origin":
		var o Origin
		return first(setInto(path, f.Value, &o), o.check(path))
	case "sourceGone":
		var gone bool
		return setInto(path, f.Value, &gone)
	case "lease":
		var l Lease
		return first(setInto(path, f.Value, &l), required(path+".holder", l.Holder), required(path+".until", string(l.Until)), l.Until.check(path+".until"))
	case "totals", "limits", "settings", "trajectory":
		return nil // any value: kept raw
	}
	return nil
}

func checkCursors(path string, raw Raw) error {
	var cursors map[string]Offset
	if err := setInto(path, raw, &cursors); err != nil {
		return err
	}
	for _, thread := range sortedKeys(cursors) {
		if err := validOffset(fmt.Sprintf("%s[%q]", path, thread), cursors[thread]); err != nil {
			return err
		}
	}
	return nil
}

// Binding ties a session to an agent's own session.
type Binding struct {
	Vendor    string    `json:"vendor"`
	ID        string    `json:"id"`
	ExpiresAt Timestamp `json:"expiresAt,omitempty"`
	Unknown   Fields    `json:",unknown"`
}

// Lease is the field lease of a session of kind lock: its holder works on the document of the lock until a time by the
// log's clock. It does not stop others from writing.
type Lease struct {
	Holder  string    `json:"holder"`
	Until   Timestamp `json:"until"`
	Unknown Fields    `json:",unknown"`
}

// SessionRewound moves the head: the threads are again as they were right after offset To. Nothing is deleted.
type SessionRewound struct {
	To         Offset         `json:"to"`
	Checkpoint string         `json:"checkpoint,omitempty"` // the rewind checkpoint that is used up
	Undoes     Offset         `json:"undoes,omitempty"`     // the rewind that this one undoes
	Reason     string         `json:"reason,omitempty"`
	Raw        Raw            `json:"raw,omitempty"`
	Files      []RestoredFile `json:"files,omitempty"`
	Unknown    Fields         `json:",unknown"`
}

// RestoredFile is the effect of a rewind on one file of the working tree.
type RestoredFile struct {
	Path   string `json:"path"`
	Action string `json:"action"` // restored, removed or failed
	Error  string `json:"error,omitempty"`
	Before DocRef `json:"before,omitempty"` // the file before, or Absent; "" only if the action failed
	Mode   int64  `json:"mode,omitempty"`
}

func (p *SessionRewound) EventType() string { return TypeSessionRewound }

// Validate implements Payload. Whether the target is possible depends on the history; the fold decides it.
func (p *SessionRewound) Validate() error {
	if p.To == 0 {
		return wrong("to", "missing, or 0: nothing is before everything")
	}
	if err := first(validOffset("to", p.To), validOffset("undoes", p.Undoes)); err != nil {
		return err
	}
	for i, f := range p.Files {
		path := fmt.Sprintf("files[%d]", i)
		if err := first(required(path+".path", f.Path), oneOf(path+".action", f.Action, "restored", "removed", "failed"),
			f.Before.check(path+".before", true), notNegative(path+".mode", f.Mode)); err != nil {
			return err
		}
		if f.Before == "" && f.Action != "failed" {
			return wrong(path+".before", "missing")
		}
	}
	return validRaw("raw", p.Raw)
}

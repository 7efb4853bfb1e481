package projector

import (
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// InboxThread is the thread of an inbox that holds its messages. It is also the name of the inbox's read cursor.
const InboxThread = "inbox"

const inboxPrefix = events.KindInbox + "/"

// InboxSubject returns the session that is a receiver's inbox.
func InboxSubject(ns, receiver string) events.Subject {
	return events.Session(ns, inboxPrefix+receiver)
}

// ReceiverOf returns the receiver of an inbox. It returns false if the session is not an inbox.
func ReceiverOf(sub events.Subject) (string, bool) {
	receiver, ok := strings.CutPrefix(sub.ID, inboxPrefix)
	return receiver, ok && sub.IsSession() && receiver != ""
}

// Letter is a message in an inbox, without its body. The body is the turn of entry Index of the record. An event of
// another program may bring several messages, which then share an offset.
type Letter struct {
	Receiver string        // the owner of the inbox
	Offset   events.Offset // of the record that brought it
	Index    int           // among the entries of the record
	Recorded time.Time
	Bytes    int // of the body
	MessageMeta
	Malformed string // why its meta cannot be read; the meta is then empty
}

// Ref returns the reference of the message.
func (l Letter) Ref() MessageRef { return MessageRef{Inbox: l.Receiver, ID: l.ID} }

// LettersOf returns the messages that a record delivers to an inbox. Delivery is final: later changes to the thread do
// not retract a message.
func LettersOf(f Fact) []Letter {
	receiver, ok := ReceiverOf(f.Subject)
	p, turns := f.Payload.(*events.TurnAppended)
	if !ok || !turns || f.Invalid != nil {
		return nil
	}
	var list []Letter
	for i, e := range p.Entries {
		if e.Thread != InboxThread {
			continue
		}
		l := Letter{Receiver: receiver, Offset: f.Offset, Index: i, Recorded: f.Recorded, Bytes: len(e.Turn) + len(e.Bytes)}
		var err error
		if l.MessageMeta, err = ParseMessageMeta(e.Meta); err != nil {
			l.Malformed = err.Error()
		}
		list = append(list, l)
	}
	return list
}

// HandOver is the state of the attempts to hand a message to its receiver. It is the inbox field "handover". It ends
// when the cursor has passed the message.
type HandOver struct {
	At       events.Offset    `json:"at"`       // of the message
	Refusals int              `json:"refusals"` // so far
	Last     events.Timestamp `json:"last"`     // refusal, by the log's time
	Reason   string           `json:"reason,omitempty"`
	Unknown  events.Fields    `json:",unknown"`
}

// Delays between the attempts to hand a message over, after the first refusal. They double from minRetry to
// maxRetry.
const (
	minRetry = time.Second
	maxRetry = 5 * time.Minute
)

// Retry returns the time of the next attempt, by the log's time. It returns false if no attempt was refused yet, or the
// time of the refusal is unknown.
func (h HandOver) Retry() (time.Time, bool) {
	last, ok := h.Last.Time()
	if h.Refusals <= 0 || !ok {
		return time.Time{}, false
	}
	if h.Refusals > 16 {
		return last.Add(maxRetry), true
	}
	return last.Add(min(minRetry<<(h.Refusals-1), maxRetry)), true
}

// InboxFields holds the fields of an inbox that describe the receiver's progress. A nil pointer means that the record
// does not set the field.
type InboxFields struct {
	Cursor   *events.Offset // offset of the last record that was read
	Status   *string        // archived, or a status of the same form as an agent's
	HandOver *HandOver
}

// InboxFieldsOf returns the fields that a record sets. A removed or malformed field counts as set to empty.
func InboxFieldsOf(f Fact) (said InboxFields) {
	p, ok := f.Payload.(*events.SessionUpdated)
	if !ok || f.Invalid != nil {
		return said
	}
	if raw, ok := p.Set.Get("cursors"); ok {
		cursors := make(map[string]events.Offset)
		_ = rawjson.Unmarshal(raw, &cursors) // null: no cursors
		at := cursors[InboxThread]
		said.Cursor = &at
	}
	if raw, ok := p.Set.Get("status"); ok {
		status, _ := rawjson.String(raw)
		said.Status = &status
	}
	if raw, ok := p.Set.Get("handover"); ok {
		said.HandOver = new(HandOver)
		if rawjson.Unmarshal(raw, said.HandOver) != nil || said.HandOver.At > events.MaxOffset {
			*said.HandOver = HandOver{}
		}
	}
	return said
}

// Or returns the fields, with unset ones taken from older.
func (i InboxFields) Or(older InboxFields) InboxFields {
	if i.Cursor == nil {
		i.Cursor = older.Cursor
	}
	if i.Status == nil {
		i.Status = older.Status
	}
	if i.HandOver == nil {
		i.HandOver = older.HandOver
	}
	return i
}

// IsWhole reports whether all fields are set.
func (i InboxFields) IsWhole() bool { return i.Cursor != nil && i.Status != nil && i.HandOver != nil }

// IsGone reports whether a receiver with this status gets no more messages: it is archived, or stopped for any reason.
// A receiver whose status is "done" can still be asked.
func IsGone(status string) bool {
	return status == "archived" || strings.HasPrefix(status, "stopped:")
}

// Inbox is the fold of an inbox: its messages without their bodies, and the receiver's progress. The zero value is an
// inbox without records.
type Inbox struct {
	Last    events.Offset // of its records
	Letters []Letter      // in order of delivery
	Fields  InboxFields
}

// Apply folds the next record of the inbox.
func (in *Inbox) Apply(f Fact) {
	in.Last = f.Offset
	in.Letters = append(in.Letters, LettersOf(f)...)
	in.Fields = InboxFieldsOf(f).Or(in.Fields)
}

// Cursor returns the offset up to which messages were read, or 0.
func (in *Inbox) Cursor() events.Offset {
	if in.Fields.Cursor == nil {
		return 0
	}
	return *in.Fields.Cursor
}

// Status returns the inbox's status, or "".
func (in *Inbox) Status() string {
	if in.Fields.Status == nil {
		return ""
	}
	return *in.Fields.Status
}

// Unread lists the messages behind the cursor.
func (in *Inbox) Unread() []Letter {
	i, _ := slices.BinarySearchFunc(in.Letters, in.Cursor()+1, func(l Letter, at events.Offset) int {
		if l.Offset < at {
			return -1
		}
		return 1
	})
	return in.Letters[i:]
}

// question identifies a question by asker, receiver and message id. An answer refers to it.
type question struct{ asker, asked, id string }

// Mail is the fold of all inboxes of a namespace, with the messages that still await an answer. The zero value has no
// records. Mail defines the content of the tables of a view. It keeps every letter in memory, so a view of many inboxes
// uses the functions below Mail instead.
type Mail struct {
	At      events.Offset // offset of the last folded record
	Inboxes map[string]*Inbox
	open    map[question]Letter
}

// Apply folds the next record of any subject of the namespace.
func (m *Mail) Apply(f Fact) {
	m.At = f.Offset
	receiver, ok := ReceiverOf(f.Subject)
	if !ok {
		return
	}
	if m.Inboxes == nil {
		m.Inboxes, m.open = make(map[string]*Inbox), make(map[question]Letter)
	}
	in := m.Inboxes[receiver]
	if in == nil {
		in = new(Inbox)
		m.Inboxes[receiver] = in
	}
	n := len(in.Letters)
	in.Apply(f)
	for _, l := range in.Letters[n:] {
		if from, id := l.Answers(); id != "" {
			delete(m.open, question{receiver, from, id})
		}
		if l.Awaits() && l.From != "" && l.ID != "" {
			m.open[question{l.From, receiver, l.ID}] = l
		}
	}
}

// Open lists the messages that await an answer, in the order of the log.
func (m *Mail) Open() []Letter {
	list := make([]Letter, 0, len(m.open))
	for _, l := range m.open {
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b Letter) int {
		if a.Offset != b.Offset {
			if a.Offset < b.Offset {
				return -1
			}
			return 1
		}
		return a.Index - b.Index
	})
	return list
}

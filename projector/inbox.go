package projector

import (
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// InboxThread is the thread of an inbox that has its messages, and the name of the cursor
// that says which of them were seen.
const InboxThread = "inbox"

const inboxPrefix = events.KindInbox + "/"

// InboxSubject names the session that is a receiver's inbox.
func InboxSubject(ns, receiver string) events.Subject {
	return events.Session(ns, inboxPrefix+receiver)
}

// ReceiverOf returns whose inbox a session is, and whether it is one.
func ReceiverOf(sub events.Subject) (string, bool) {
	receiver, ok := strings.CutPrefix(sub.ID, inboxPrefix)
	return receiver, ok && sub.IsSession() && receiver != ""
}

// Letter is a message as it lies in an inbox, without its body: that is the turn of entry
// Index of the record. An event of somebody else may bring several, which have one offset.
type Letter struct {
	Receiver string        // whose inbox it is in
	Offset   events.Offset // of the record that brought it
	Index    int           // among the entries of the record
	Recorded time.Time
	Bytes    int // of the body
	MessageMeta
	Malformed string // why its meta cannot be read: it has none then
}

// Ref names the message.
func (l Letter) Ref() MessageRef { return MessageRef{Inbox: l.Receiver, ID: l.ID} }

// LettersOf returns the messages that a record brings to an inbox. What was delivered stays
// so: nothing that happens to the thread later takes one back.
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

// HandOver is what came of the attempts to hand a message to its receiver: the field
// handover of an inbox. It is over when the cursor has passed the message.
type HandOver struct {
	At       events.Offset    `json:"at"`       // of the message
	Refusals int              `json:"refusals"` // so far
	Last     events.Timestamp `json:"last"`     // refusal, by the log's time
	Reason   string           `json:"reason,omitempty"`
	Unknown  events.Fields    `json:",unknown"`
}

// Attempts to hand a message over are that far apart, from the first one that was refused on.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// Retry is when the message is to be handed over again, by the log's time; false if nothing
// was refused yet, or nobody can say when.
func (h HandOver) Retry() (time.Time, bool) {
	last, ok := h.Last.Time()
	if h.Refusals <= 0 || !ok {
		return time.Time{}, false
	}
	if h.Refusals > 16 {
		return last.Add(lastRetry), true
	}
	return last.Add(min(firstRetry<<(h.Refusals-1), lastRetry)), true
}

// InboxFields are the fields of an inbox that say how far its receiver is. A pointer is nil
// where nothing is said.
type InboxFields struct {
	Cursor   *events.Offset // of the last record that was seen
	Status   *string        // archived, or a status like that of an agent
	HandOver *HandOver
}

// InboxFieldsOf returns what a record says of them. A field that is taken away, or of
// another form, is said to be empty.
func InboxFieldsOf(f Fact) (said InboxFields) {
	p, ok := f.Payload.(*events.SessionUpdated)
	if !ok || f.Invalid != nil {
		return said
	}
	if raw, ok := p.Set.Get("cursors"); ok {
		cursors := make(map[string]events.Offset)
		_ = rawjson.Unmarshal(raw, &cursors) // null: none
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

// Or returns the fields with what is not said taken from older ones.
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

// IsWhole reports whether all of them are said.
func (i InboxFields) IsWhole() bool { return i.Cursor != nil && i.Status != nil && i.HandOver != nil }

// IsGone reports whether a status is that of a receiver who gets no messages any more:
// archived, or stopped for whatever reason. Who is done can be asked again.
func IsGone(status string) bool {
	return status == "archived" || strings.HasPrefix(status, "stopped:")
}

// Inbox is the fold of an inbox: its messages without their bodies, and how far its
// receiver is. The zero value is an inbox without records.
type Inbox struct {
	Last    events.Offset // of its records
	Letters []Letter      // in the order in which they came
	Fields  InboxFields
}

// Apply folds the next record of the inbox.
func (in *Inbox) Apply(f Fact) {
	in.Last = f.Offset
	in.Letters = append(in.Letters, LettersOf(f)...)
	in.Fields = InboxFieldsOf(f).Or(in.Fields)
}

// Cursor is the offset up to which messages were seen, 0 if none was.
func (in *Inbox) Cursor() events.Offset {
	if in.Fields.Cursor == nil {
		return 0
	}
	return *in.Fields.Cursor
}

// Status is the inbox's status, "" if it has none.
func (in *Inbox) Status() string {
	if in.Fields.Status == nil {
		return ""
	}
	return *in.Fields.Status
}

// Unread lists the messages that were not seen.
func (in *Inbox) Unread() []Letter {
	i, _ := slices.BinarySearchFunc(in.Letters, in.Cursor()+1, func(l Letter, at events.Offset) int {
		if l.Offset < at {
			return -1
		}
		return 1
	})
	return in.Letters[i:]
}

// question is what an answer is known by: who asked whom, and the message's id.
type question struct{ asker, asked, id string }

// Mail is the fold of all inboxes of a namespace: the inboxes, and the messages that still
// await an answer. The zero value is without records. It is the definition of what a view
// keeps in tables, and keeps every letter: a view of many inboxes takes the functions that
// it stands on.
type Mail struct {
	At      events.Offset // of the last record that was folded
	Inboxes map[string]*Inbox
	open    map[question]Letter
}

// Apply folds the next record, of whatever subject of the namespace.
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

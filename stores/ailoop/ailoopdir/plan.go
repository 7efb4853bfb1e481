package ailoopdir

import (
	"context"
	"strconv"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

var stamp = sessiondir.Stamp{Format: Format, Source: EventSource}

// plan lists the changes after which the session renders the file.
type plan struct {
	f      *snapshotFile
	base   *projector.Session
	origin *events.Origin
	change chat.Change
	doc    events.Subject // keeps the file whole; zero: none is needed
	gone   events.Subject // kept it before
	head   []events.Payload
}

// Plan implements sessiondir.Found.
func (f *snapshotFile) Plan(_ context.Context, v view, origin *events.Origin) (sessiondir.Plan, error) {
	p := &plan{f: f, base: v.s, origin: origin}
	have, err := chat.Of(v.s)
	if err != nil { // it has turns that are not messages
		have = chat.Snapshot{}
		p.change = chat.Replace(have, f.content)
	} else {
		p.change = chat.Between(have, f.content)
	}
	if p.change.Nothing() && v.s.Threads[events.MainThread] == nil {
		p.change.Replaced = true // the conversation is empty, and the thread exists
	}
	format := f.Format
	if !f.exact {
		p.doc = events.Document(v.s.Subject.Namespace, events.KindFile, docID(f.ID))
		format.Doc, format.Of = events.RefOf(p.doc, 0), sessiondir.SumOf(spell(f.content, format))
	} else if old := v.s.Ledger.Formats[formatKey]; old.Doc != "" {
		if p.gone, _, err = old.Doc.Parse(v.s.Subject.Namespace); err != nil {
			return p, err
		}
	}
	return p, p.planHead(have, format)
}

// docID returns the document of a file that is kept whole. It has two slashes, so that no layout of folders treats it
// as a file of a root.
func docID(session string) string {
	id := Format + "/" + session
	if len(id) > events.MaxIDLen {
		id = Format + "/" + prefix + sessiondir.SumOf([]byte(session))
	}
	return id
}

// planHead plans the changes outside of turns.
func (p *plan) planHead(have chat.Snapshot, format events.FileFormat) error {
	set := events.Fields{}
	if !chat.EqualUnknown(have.Unknown, p.f.content.Unknown) {
		set = append(set, chat.UnknownMember(p.f.content.Unknown))
	}
	if name := p.f.Full; fileOf(p.base) != name && utf8.ValidString(name) {
		field := events.Field{Name: fieldFile, Value: events.Raw("null")}
		if nameOf(p.f.ID) != name {
			field.Value = rawjson.AppendString(nil, name)
		}
		set = append(set, field)
	}
	c := events.SessionCreated{Kind: events.KindHistory, CreatedAt: p.f.written, Origin: p.origin}
	if old, ok := p.base.Ledger.Formats[formatKey]; !ok || old != format {
		c.Formats = map[string]events.FileFormat{formatKey: format}
	}
	created, updated, err := sessiondir.Head(p.base, c, set)
	if created != nil {
		p.head = append(p.head, created)
	}
	if updated != nil {
		p.head = append(p.head, updated)
	}
	return err
}

// Contradicts implements sessiondir.Plan.
func (p *plan) Contradicts(since map[string]bool) bool {
	undoes := p.change.Replaced || len(p.change.Pins) > 0
	return !p.change.Nothing() && (since[events.TypeSessionRewound] || sessiondir.MovesThreads(since) && undoes)
}

// Apply implements sessiondir.Plan. Each message is an event of its own, so that the session can be rewound to any.
func (p *plan) Apply(ctx context.Context) error {
	if err := p.documents(ctx); err != nil {
		return err
	}
	w := p.f.In.Writer(p.base.Subject, p.base.Offset())
	w.Rewrites = p.change.Replaced
	for _, it := range p.steps() {
		e, err := events.New(EventSource, p.base.Subject, it.payload)
		if err != nil {
			return err
		}
		if err := w.Add(ctx, stamp.Named(e, p.base.Offset(), it.what, p.f.written)); err != nil {
			return err
		}
	}
	return w.Flush(ctx)
}

// documents keeps the file whole, before any event refers to it.
func (p *plan) documents(ctx context.Context) error {
	switch {
	case p.doc != events.Subject{}:
		return p.f.In.Keep(ctx, p.doc, p.origin, p.f.File, events.Link{Rel: "session", To: p.base.Subject.String()})
	case p.gone != events.Subject{}:
		return p.f.In.Drop(ctx, p.gone)
	}
	return nil
}

// step is an event of a plan, with its role.
type step struct {
	what    string
	payload events.Payload
}

// steps returns the plan's events in the order in which they are appended.
func (p *plan) steps() []step {
	var list []step
	for _, payload := range p.head {
		list = append(list, step{"head", payload})
	}
	rest := p.change
	rest.Appended = nil
	if !rest.Nothing() {
		var meta events.Raw
		if th := p.base.Threads[events.MainThread]; th != nil {
			meta = th.Meta
		}
		list = append(list, step{"thread", rest.Payload(events.MainThread, meta, "import")})
	}
	for i, it := range p.change.Appended {
		one := chat.Change{Appended: []events.Item{it}}
		list = append(list, step{"message/" + strconv.Itoa(i), one.Payload(events.MainThread, nil, "import")})
	}
	return list
}

package ailoopdir

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
	"github.com/tallylog/tally/stores/internal/foreign"
)

const wayOut = "import into another namespace (--namespace), or take the file's content over it (--merge)"

var stamp = foreign.Stamp{Format: Format, Source: EventSource}

// plan is what has to happen so that the session renders the file.
type plan struct {
	im     *importer
	base   *projector.Session
	origin *events.Origin
	change chat.Change
	doc    events.Subject // that keeps the file whole; none: it need not be kept
	gone   events.Subject // that kept it before
	head   []events.Payload
}

// plan compares the file with the session. reason says why the session must not
// be changed by it, "" if it may.
func (im *importer) plan(ctx context.Context, v view) (p *plan, reason string, err error) {
	p = &plan{im: im, base: v.s, origin: im.origin(v.s)}
	have, err := v.snapshot()
	foreignTurns := err != nil
	if foreignTurns {
		have = chat.Snapshot{}
		p.change = chat.Replace(have, im.f.content)
	} else {
		p.change = chat.Between(have, im.f.content)
	}
	if p.change.Nothing() && v.s.Threads[events.MainThread] == nil {
		p.change.Replaced = true // nothing was said, and the thread exists
	}
	if reason, err := im.refusal(ctx, p); reason != "" || err != nil {
		return p, reason, err
	}
	format := im.f.format
	if old := v.format(); old.Doc != "" {
		if p.gone, _, err = old.Doc.Parse(v.s.Subject.Namespace); err != nil {
			return p, "", err
		}
	}
	if !im.f.exact {
		p.doc, p.gone = events.Document(v.s.Subject.Namespace, events.KindFile, docID(im.f.id)), events.Subject{}
		format.Doc, format.Of = events.RefOf(p.doc, 0), foreign.SumOf(spell(im.f.content, format))
	}
	return p, "", p.planHead(have, format)
}

// docID names the document of a file that is kept whole. It has two slashes, so
// that no layout of folders takes it for a file of a root.
func docID(session string) string {
	id := Format + "/" + session
	if len(id) > events.MaxIDLen {
		id = Format + "/" + prefix + foreign.SumOf([]byte(session))
	}
	return id
}

// planHead decides what is not a turn.
func (p *plan) planHead(have chat.Snapshot, format events.FileFormat) error {
	set := events.Fields{}
	if !chat.EqualUnknown(have.Unknown, p.im.f.content.Unknown) {
		set = append(set, chat.UnknownMember(p.im.f.content.Unknown))
	}
	if name := p.im.f.name; fileOf(p.base) != name && utf8.ValidString(name) {
		field := events.Field{Name: fieldFile, Value: events.Raw("null")}
		if nameOf(p.im.f.id) != name {
			field.Value = rawjson.AppendString(nil, name)
		}
		set = append(set, field)
	}
	var spelled map[string]events.FileFormat
	if old, ok := p.base.Ledger.Formats[formatKey]; !ok || old != format {
		spelled = map[string]events.FileFormat{formatKey: format}
	}
	if p.base.Ledger.Created == 0 {
		p.head = append(p.head, &events.SessionCreated{Kind: events.KindHistory, CreatedAt: p.im.f.written, Origin: p.origin, Formats: spelled})
		spelled = nil
	} else if old := p.base.Ledger.Origin(); old == nil || *old != *p.origin {
		raw, err := rawjson.Marshal(p.origin)
		if err != nil {
			return err
		}
		set = append(set, events.Field{Name: "origin", Value: raw})
	}
	if len(set) > 0 || spelled != nil {
		p.head = append(p.head, &events.SessionUpdated{Set: set, Reason: "import", Formats: spelled})
	}
	return nil
}

// refusal says why a session must not be changed by the file.
func (im *importer) refusal(ctx context.Context, p *plan) (string, error) {
	if p.base.Offset() == 0 || im.o.Merge {
		return "", nil
	}
	have := p.base.Ledger.Origin()
	switch {
	case p.base.Ledger.Kind != events.KindHistory:
		return fmt.Sprintf("the session exists and is of kind %s: %s", p.base.Ledger.Kind, wayOut), nil
	case have == nil:
		return "the session exists, was not imported and differs from the file: " + wayOut, nil
	case !im.isSameOrigin(have):
		return fmt.Sprintf("the session exists, was imported from another file (below %q) and differs from this one: %s", have.Root, wayOut), nil
	}
	threads, rewound, err := im.since(ctx, p.base.Subject)
	if err != nil || !rewound && !(threads && (p.change.Replaced || len(p.change.Pins) > 0)) || p.change.Nothing() {
		return "", err
	}
	return "the session was changed after its last import, and differs from the file: " + wayOut, nil
}

// since says what others did to a session after its last import.
func (im *importer) since(ctx context.Context, sub events.Subject) (threads, rewound bool, err error) {
	for rec, err := range im.target.Loader().Source.Read(ctx, events.Range{Subject: sub}) {
		if _, damaged := errors.AsType[*events.DamageError](err); damaged {
			continue
		}
		switch {
		case err != nil:
			return false, false, err
		case rec.Source == EventSource:
			threads, rewound = false, false
		case events.IsThread(rec.Type):
			threads = true
		case rec.Type == events.TypeSessionRewound:
			rewound = true
		}
	}
	return threads, rewound, nil
}

// guardTypes are those that would make a plan wrong.
func guardTypes() []string {
	return append(events.ThreadTypes(), events.TypeSessionRewound, events.TypeSessionCreated, events.TypeSessionUpdated)
}

// apply carries the plan out, or counts what it comes to. It returns the number
// of events added.
func (p *plan) apply(ctx context.Context) (int, error) {
	added, err := p.documents(ctx)
	p.im.added(added)
	if err != nil {
		return added, err
	}
	evs, err := p.events()
	if err != nil {
		return added, err
	}
	if p.im.o.DryRun {
		p.im.added(len(evs))
		return added + len(evs), nil
	}
	w := foreign.NewWriter(p.im.target, p.base.Subject, p.base.Offset(), guardTypes(), p.im.added)
	w.Rewrites = p.change.Replaced
	for _, e := range evs {
		if err := w.Add(ctx, e); err != nil {
			return added + w.Added, err
		}
	}
	err = w.Flush(ctx)
	return added + w.Added, err
}

// documents keeps the file whole, before any event says so.
func (p *plan) documents(ctx context.Context) (int, error) {
	switch {
	case p.doc != events.Subject{}:
		return stamp.PutDocument(ctx, p.im.target, p.im.whole(p.doc, p.origin.Root), p.im.o.DryRun)
	case p.gone != events.Subject{}:
		return stamp.DeleteDocument(ctx, p.im.target, p.gone, p.im.o.DryRun)
	}
	return 0, nil
}

// events returns what the plan comes to, in the order in which it is appended. Each
// message is an event of its own, so that the session can be rewound to any.
func (p *plan) events() ([]events.Event, error) {
	var evs []events.Event
	var failed error
	emit := func(payload events.Payload, what string) {
		e, err := events.New(EventSource, p.base.Subject, payload)
		if err != nil {
			failed = err
			return
		}
		e.ID = events.DerivedID(Format, p.base.Subject.ID, p.base.Offset().String(), what, e.Type, foreign.SumOf(e.Data))
		e.Time = foreign.TimeOf(p.im.f.written)
		evs = append(evs, e)
	}
	for _, payload := range p.head {
		emit(payload, "head")
	}
	rest := p.change
	rest.Appended = nil
	if th := p.base.Threads[events.MainThread]; !rest.Nothing() {
		var meta events.Raw
		if th != nil {
			meta = th.Meta
		}
		emit(rest.Payload(events.MainThread, meta, "import"), "thread")
	}
	for i, it := range p.change.Appended {
		emit((chat.Change{Appended: []events.Item{it}}).Payload(events.MainThread, nil, "import"), "message/"+strconv.Itoa(i))
	}
	return evs, failed
}

package daemon

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Source is the log that a Scan reads.
type Source interface {
	projector.Source
	Durable(ctx context.Context) (events.Offset, error)
	Subjects(ctx context.Context, ns, kind string) iter.Seq2[log.SubjectInfo, error]
}

// Scan is the [Work] of a store that has no view: it reads what the log has of inboxes,
// queues, agents, flows and documents, once, keeps where to look in memory, and reads what
// came since with each call. So it costs more than a view, and says the same. It is safe for
// concurrent use.
type Scan struct {
	src    Source
	loader *projector.Loader

	mu     sync.Mutex // guards the rest
	at     events.Offset
	spaces map[string]*space // by namespace
}

// space is what is known of a namespace.
type space struct {
	*Scan
	namespace string
	mail      projector.Mail
	answered  map[question]bool
	queues    map[string]*projector.Work // by id
	due       map[events.Subject][]Due   // by what a subject says of itself
	owners    map[events.Subject]string  // of what would be an orphan
	gone      map[string]time.Time       // session -> when it went; an inbox has it of its own status
}

// question is who asked whom, and the message's id.
type question struct{ asker, asked, id string }

// NewScan makes a scan of a log, of all its namespaces. Nothing is read yet.
func NewScan(l Source, loader *projector.Loader) *Scan {
	return &Scan{src: l, loader: loader, spaces: make(map[string]*space)}
}

// in returns what is known of a namespace.
func (s *Scan) in(namespace string) *space {
	if s.spaces[namespace] == nil {
		s.spaces[namespace] = &space{Scan: s, namespace: namespace, answered: make(map[question]bool), queues: make(map[string]*projector.Work),
			due: make(map[events.Subject][]Due), owners: make(map[events.Subject]string), gone: make(map[string]time.Time)}
	}
	return s.spaces[namespace]
}

// Cursor implements Work.
func (s *Scan) Cursor(ctx context.Context) (events.Offset, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.catchUp(ctx)
	return s.at, err
}

// Due implements Work.
func (s *Scan) Due(ctx context.Context, what string, upto time.Time, limit int) (list []Due, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.catchUp(ctx); err != nil {
		return nil, err
	}
	for _, in := range s.spaces {
		list = append(list, in.list(what)...)
	}
	list = slices.DeleteFunc(list, func(d Due) bool { return d.At.After(upto) })
	slices.SortFunc(list, func(a, b Due) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Subject.String(), b.Subject.String()), cmp.Compare(a.Subject.Namespace, b.Subject.Namespace), cmp.Compare(a.About, b.About))
	})
	return list[:min(limit, len(list))], nil
}

// catchUp reads what came since, the first time only of subjects that matter.
func (s *Scan) catchUp(ctx context.Context) error {
	head, err := s.src.Durable(ctx)
	if err != nil || head <= s.at {
		return err
	}
	changed := make(map[events.Subject]bool)
	if s.at == 0 {
		err = s.begin(ctx, head, changed)
	} else {
		err = s.read(ctx, events.Range{After: s.at, Upto: head}, changed)
	}
	for sub := range changed {
		if err == nil {
			err = s.in(sub.Namespace).refresh(ctx, sub)
		}
	}
	if s.at = head; err != nil {
		s.at = 0 // what was folded is not folded again: it begins anew
	}
	return err
}

// begin reads what there is up to an offset.
func (s *Scan) begin(ctx context.Context, head events.Offset, changed map[events.Subject]bool) error {
	clear(s.spaces)
	var lives []events.Subject // of items, which are known by their queues
	for info, err := range s.src.Subjects(ctx, "", "") {
		if err != nil {
			return err
		}
		switch sub := info.Subject; {
		case sub.Kind == events.KindUnit || sub.Kind == events.KindBlob:
		case !sub.IsSession() || hasState(sub.ID):
			changed[sub] = true
		case events.KindOf(sub.ID) == events.KindItem:
			lives = append(lives, sub)
		case isFolded(sub):
			if err := s.read(ctx, events.Range{Subject: sub, Upto: head}, changed); err != nil {
				return err
			}
		}
	}
	for _, sub := range lives {
		if err := s.read(ctx, events.Range{Subject: sub, Upto: head}, changed); err != nil {
			return err
		}
	}
	return nil
}

// read folds the records of a range, and notes of which subjects others are.
func (s *Scan) read(ctx context.Context, r events.Range, changed map[events.Subject]bool) error {
	for rec, err := range s.src.Read(ctx, r) {
		if err == nil && isFolded(rec.Subject) {
			rec, err = projector.Resolve(ctx, s.src, rec, cmp.Or(s.loader.MaxValue, events.MaxValue))
		}
		if events.IsDamage(err) {
			continue
		}
		if err != nil {
			return err
		}
		switch sub := rec.Subject; {
		case isFolded(sub):
			s.in(sub.Namespace).fold(projector.Decode(rec))
		case sub.Kind == events.KindUnit || sub.Kind == events.KindBlob:
		case !sub.IsSession() || hasState(sub.ID):
			changed[sub] = true
		}
	}
	return nil
}

// hasState reports whether what is due of a session is in its outline.
func hasState(session string) bool {
	kind := events.KindOf(session)
	return kind == events.KindAgent || kind == events.KindFlow
}

// isFolded reports whether a subject is an inbox, a queue or the life of an item.
func isFolded(sub events.Subject) bool {
	kind := events.KindOf(sub.ID)
	return sub.IsSession() && (kind == events.KindInbox || kind == events.KindQueue || kind == events.KindItem)
}

// fold folds a record of an inbox or a queue.
func (s *space) fold(f projector.Fact) {
	if events.KindOf(f.Subject.ID) != events.KindInbox {
		s.queue(f)
		return
	}
	s.mail.Apply(f)
	for _, l := range projector.LettersOf(f) {
		if from, id := l.Answers(); id != "" {
			s.answered[question{l.Receiver, from, id}] = true
		}
	}
	if said := projector.InboxFieldsOf(f); said.Status != nil {
		s.went(f.Subject.ID, projector.IsGone(*said.Status), f.Recorded)
	}
}

// list lists all that is due of a sort, at any time.
func (s *space) list(what string) (list []Due) {
	switch what {
	case projector.DueOverdue:
		return s.overdue()
	case projector.DueGone:
		return s.goneMail()
	case projector.DueHandover:
		return s.refused()
	case projector.DueQueue:
		return s.items()
	case projector.DueOverlay, projector.DueOrphan:
		return s.orphans(what)
	}
	for _, of := range s.due {
		for _, d := range of {
			if d.What == what {
				list = append(list, d)
			}
		}
	}
	return list
}

// went notes whether a session is gone, and since when: what it said first stays.
func (s *space) went(session string, gone bool, at time.Time) {
	if !gone {
		delete(s.gone, session)
	} else if s.gone[session].IsZero() {
		s.gone[session] = at
	}
}

// queue folds a record of a queue or one of its items.
func (s *space) queue(f projector.Fact) {
	id, ok := strings.CutPrefix(f.Subject.ID, projector.QueueSession(""))
	if !ok {
		if id, _, ok = projector.ItemOf(f.Subject.ID); !ok {
			return
		}
	}
	if s.queues[id] == nil {
		s.queues[id] = projector.NewWork(s.namespace, id, false)
	}
	s.queues[id].Apply(f)
}

// refresh notes what a session or document says of itself, as it is now.
func (s *space) refresh(ctx context.Context, sub events.Subject) error {
	delete(s.due, sub)
	delete(s.owners, sub)
	if !sub.IsSession() {
		return s.document(ctx, sub)
	}
	o, err := s.loader.Peek(ctx, sub)
	err = projector.Tolerate(err) // what is due of it is decided by those who read it
	if events.IsDamage(err) {
		return nil
	}
	if err != nil {
		return err
	}
	switch l := o.Ledger(); l.Kind {
	case events.KindAgent:
		s.agent(sub, l)
	case events.KindFlow:
		return s.flow(ctx, sub, l)
	}
	return nil
}

func (s *space) add(what string, sub events.Subject, at time.Time) {
	if !at.IsZero() {
		s.due[sub] = append(s.due[sub], Due{What: what, Subject: sub, At: at})
	}
}

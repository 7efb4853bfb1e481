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

// Scan is the [Work] of a store without a view. It reads the records of inboxes, queues, agents, flows and documents
// once, keeps the due entries in memory, and reads new records at each call. It costs more than a view, and returns the
// same. It is safe for concurrent use.
type Scan struct {
	src    Source
	loader *projector.Loader

	mu     sync.Mutex // guards the rest
	at     events.Offset
	spaces map[string]*space // by namespace
}

// space is the state of a namespace.
type space struct {
	*Scan
	namespace string
	mail      projector.Mail
	answered  map[question]bool
	queues    map[string]*projector.Work // by id
	due       map[events.Subject][]Due   // entries of each session or document
	owners    map[events.Subject]string  // of possible orphans
	gone      map[string]time.Time       // session -> when it ended; an inbox has an entry for its own status
}

// question identifies a question by asker, receiver and message id.
type question struct{ asker, asked, id string }

// NewScan returns a scan of all namespaces of a log. It reads nothing yet.
func NewScan(l Source, loader *projector.Loader) *Scan {
	return &Scan{src: l, loader: loader, spaces: make(map[string]*space)}
}

// in returns the state of a namespace.
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

// catchUp reads the new records. The first time it reads only relevant subjects.
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
		s.at = 0 // a partial fold cannot be resumed, so it restarts
	}
	return err
}

// begin reads the records up to an offset.
func (s *Scan) begin(ctx context.Context, head events.Offset, changed map[events.Subject]bool) error {
	clear(s.spaces)
	var lives []events.Subject // sessions of items, which are folded with their queues
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

// read folds the records of inboxes and queues in a range, and collects the other changed subjects.
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

// hasState reports whether the due entries of a session follow from its outline.
func hasState(session string) bool {
	kind := events.KindOf(session)
	return kind == events.KindAgent || kind == events.KindFlow
}

// isFolded reports whether a subject is an inbox, a queue or an item.
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

// list lists all entries of a kind, due or not.
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

// went notes whether a session has ended, and when. The first time stays.
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

// refresh updates the entries of a session or document from its current state.
func (s *space) refresh(ctx context.Context, sub events.Subject) error {
	delete(s.due, sub)
	delete(s.owners, sub)
	if !sub.IsSession() {
		return s.document(ctx, sub)
	}
	o, err := s.loader.Peek(ctx, sub)
	err = projector.Tolerate(err) // readers of its entries handle damage themselves
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

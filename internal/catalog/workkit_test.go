package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// workHistory draws a log of queues, inboxes, agents, flows and documents, with correct and incorrect programs: wrong
// fences, repeated items, answers without questions, owners that are gone, malformed fields.
func workHistory() *rapid.Generator[testkit.Records] {
	return rapid.Custom(func(t *rapid.T) testkit.Records {
		// rapid prefers small values, which would yield logs without interactions.
		g := &workDrawer{t: t, rand: chance(t, "history"), clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), claims: make(map[string][]events.Offset)}
		g.steps = [][2]int{{0, 19}, {0, 7}, {8, 14}, {13, 14}, {13, 18}}[g.n(4)] // all, queues, mail, agents, agents with their property
		for range 1 + g.n(79) {
			g.step()
		}
		return g.records
	})
}

// chance returns a source of uniform random numbers.
func chance(t *rapid.T, label string) *rand.Rand {
	return rand.New(rand.NewChaCha8([32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, label))))
}

type workDrawer struct {
	t       *rapid.T
	rand    *rand.Rand
	records testkit.Records
	clock   time.Time
	at      events.Offset
	claims  map[string][]events.Offset // of sessions
	asked   [][3]string                // receiver, sender and id of messages
	steps   [2]int                     // range of steps to draw from
}

// n draws a number from 0 to limit.
func (g *workDrawer) n(limit int) int { return g.rand.IntN(limit + 1) }

func (g *workDrawer) of(list ...string) string { return list[g.rand.IntN(len(list))] }

// around draws a time near the log's time.
func (g *workDrawer) around() time.Time {
	return g.clock.Add(time.Duration(g.n(1200)-600) * 500 * time.Microsecond * 300)
}

func (g *workDrawer) stamp() string {
	return g.of(g.around().Format(time.RFC3339Nano), g.around().Format(time.RFC3339Nano), "no time")
}

func (g *workDrawer) step() {
	switch g.steps[0] + g.n(g.steps[1]-g.steps[0]) {
	case 0:
		g.session("queue/"+g.queue(), events.KindQueue)
	case 1:
		g.set("queue/"+g.queue(), "settings", g.of(`{"dead":"pass"}`, `{"dead":"hold","maxAttempts":2}`, `null`))
	case 2, 3, 4:
		g.enqueue()
	case 5, 6, 7:
		g.work()
	case 8, 9, 10:
		g.letter()
	case 11:
		g.set("inbox/"+g.who(), "cursors", fmt.Sprintf(`{"inbox":%d}`, max(int(g.at)-g.n(12), 0)))
	case 12:
		g.set("inbox/"+g.who(), "handover", g.of(fmt.Sprintf(`{"at":%d,"refusals":%d,"last":%q,"reason":"busy"}`, g.n(int(g.at)), g.n(20), g.around().Format(time.RFC3339)), `null`, `7`))
	case 13:
		g.set(g.of("inbox/", "agent/")+g.who(), "status", g.of(`"archived"`, `"stopped:reaped"`, `"stopped:failed"`, `"working"`, `"waiting"`, `null`, `3`))
	case 14:
		g.agent()
	case 15, 16:
		g.flow()
	case 17, 18:
		g.document()
	default:
		g.other()
	}
}

func (g *workDrawer) queue() string { return g.of("q", "q/1", "merge") }
func (g *workDrawer) who() string   { return g.of("a", "b", "user") }

// owner draws an owner, in either notation.
func (g *workDrawer) owner() string {
	return g.of("a", "agent/b", "flow/f", "nobody", "")
}

func (g *workDrawer) session(id, kind string) {
	p := &events.SessionCreated{Kind: kind, CreatedAt: "2026-01-01T00:00:00Z", Title: g.of("", "made"), Owner: g.owner()}
	if kind == events.KindQueue && id == "queue/merge" {
		p.Settings = events.Raw(`{"serial":true}`)
	}
	if g.n(1) == 0 {
		p.Parent = &events.Lineage{Session: "agent/a"}
	}
	g.add(id, p)
}

// set sets a field, sometimes to a value that an append would refuse.
func (g *workDrawer) set(id, name, value string) {
	g.append(events.Event{Type: events.TypeSessionUpdated, Subject: events.Session("", id), ContentType: events.ContentTypeJSON,
		Data: fmt.Appendf(nil, `{"set":{%q:%s}}`, name, value)})
}

func (g *workDrawer) item() string { return g.of("1", "2", "3") }

func (g *workDrawer) enqueue() {
	p := &events.TurnAppended{}
	for range 1 + g.n(1) {
		meta := map[string]any{"id": g.item(), "owner": g.owner(), "priority": g.n(9)}
		if g.n(2) == 0 {
			meta["after"] = []string{g.item(), g.item()}
		}
		if g.n(3) == 0 {
			meta["dueAt"] = g.around()
		}
		if g.n(3) == 0 {
			meta["expiresAt"] = g.around()
		}
		if g.n(9) == 0 {
			meta["id"] = 7
		}
		raw, _ := json.Marshal(meta)
		e := events.Entry{Thread: g.of("main", "main", "main", "log"), Turn: events.Raw(`{}`), Meta: raw}
		if id, ok := meta["id"].(string); ok && g.n(1) == 0 {
			e.Run = &events.RunRef{Kind: "changeset", ID: id}
		}
		p.Entries = append(p.Entries, e)
	}
	g.add("queue/"+g.queue(), p)
}

// fence returns that of a recent claim in a session, or 0.
func (g *workDrawer) fence(session string) events.Offset {
	claims := g.claims[session]
	if len(claims) == 0 || g.n(7) == 0 {
		return 0
	}
	return claims[max(len(claims)-1-g.n(3)/3, 0)]
}

// work draws a worker's event for an item, in the item's session or the queue's.
func (g *workDrawer) work() {
	queue, item := g.queue(), g.item()
	session := projector.ItemSession(queue, item)
	if queue == "merge" {
		session = "queue/merge"
	}
	g.run(session, events.RunRef{Kind: g.of("item", "changeset"), ID: item})
}

func (g *workDrawer) run(session string, ref events.RunRef) {
	until := g.around().UnixMilli()
	switch g.n(8) {
	case 0, 1, 2:
		g.add(session, &events.RunStarted{Run: ref, Worker: g.of("w", "v", ""), LeaseUntil: until})
		g.claims[session] = append(g.claims[session], g.at)
	case 3:
		g.add(session, &events.RunProgressed{Run: ref, Kind: projector.ItemRenewed, LeaseUntil: &until, Fence: g.fence(session), State: &events.StateChange{To: "s"}})
	case 4:
		none := int64(0)
		g.add(session, &events.RunProgressed{Run: ref, Kind: g.of(projector.ItemReleased, projector.ItemFailed), LeaseUntil: &none, Fence: g.fence(session), Note: "so"})
	case 5:
		g.add(session, &events.RunProgressed{Run: ref, Kind: projector.ItemRequeued})
	case 6:
		p := &events.RunCreated{Run: ref, Owner: g.owner()}
		if g.n(1) == 0 {
			p.Parent = &events.Lineage{Session: g.of("flow/f", "flow/f", "flow/g", "agent/a")}
		}
		g.add(session, p)
	default:
		g.add(session, &events.RunFinished{Run: ref, Outcome: g.of("completed", "completed", "stopped:dead"), Result: events.Raw(`1`), Fence: g.fence(session)})
	}
}

func (g *workDrawer) letter() {
	p, receiver := &events.TurnAppended{}, g.who()
	if len(g.asked) > 0 && g.n(2) == 0 { // a matching answer
		q := g.asked[max(len(g.asked)-1-g.n(3), 0)]
		receiver = q[1]
		meta := fmt.Appendf(nil, `{"id":"r","from":%q,"replyTo":%q}`, q[0], q[2])
		g.add("inbox/"+receiver, &events.TurnAppended{Entries: []events.Entry{{Thread: "inbox", Turn: events.Raw(`1`), Meta: meta}}})
		return
	}
	for range 1 + g.n(5)/5 {
		m := map[string]any{"id": g.of("m1", "m1", "m1", "m2", ""), "from": g.of("a", "a", "b", "user", ""), "to": "x", "type": "t", "thread": "t"}
		switch g.n(6) {
		case 0:
			m["expects"] = "answer"
		case 1, 2:
			m["deadline"] = g.around()
		case 3:
			m["replyTo"] = g.of("m1", "m2")
		case 4:
			m["replyTo"], m["about"], m["malfunction"] = g.of("m1", "m2"), map[string]any{"inbox": g.who(), "id": "m1"}, "overdue"
		case 5:
			m["amends"] = "m1"
		}
		raw, _ := json.Marshal(m)
		if g.n(12) == 0 {
			raw = []byte(`{"id":7}`)
		}
		if from := m["from"].(string); from != "" {
			g.asked = append(g.asked, [3]string{receiver, from, m["id"].(string)})
		}
		p.Entries = append(p.Entries, events.Entry{Thread: g.of("inbox", "inbox", "inbox", "main"), Turn: events.Raw(`"hello"`), Meta: raw})
	}
	g.add("inbox/"+receiver, p)
}

func (g *workDrawer) agent() {
	id := "agent/" + g.who()
	switch g.n(6) {
	case 0:
		g.session(id, g.of(events.KindAgent, events.KindAgent, events.KindConversation))
	case 1:
		g.set(id, "lease", g.of(fmt.Sprintf(`{"holder":"w","until":%q}`, g.stamp()), `null`, `"x"`, `{"holder":""}`))
	case 2:
		g.set(id, g.of("title", "owner", "statusReason"), g.of(`"said"`, `null`, `4`))
	case 3:
		g.set(id, "purgedAt", fmt.Sprintf("%q", g.stamp()))
	default:
		g.set(id, g.of("finishedAt", "archivedAt"), g.of(fmt.Sprintf("%q", g.stamp()), `null`))
	}
}

func (g *workDrawer) flow() {
	id := g.of("f", "f#1", "g")
	g.run("flow/"+id, events.RunRef{Kind: g.of("workflow", "workflow", "workflow", "other"), ID: id})
}

func (g *workDrawer) document() {
	doc := events.Document("", g.of("doc", "overlay", "agent"), g.of("1", "a/2"))
	e := events.Event{Type: events.TypeDocumentWritten, Subject: doc, ContentType: "text/plain", Data: []byte("x")}
	switch g.n(5) {
	case 0:
		var err error
		if e, err = events.New("urn:test", doc, &events.DocumentDeleted{Reason: g.of("so", events.ReasonPurged)}); err != nil {
			g.t.Fatal(err)
		}
	case 1:
		e = e.WithExtension(events.ExtDoc, `{"owner":`)
	case 2:
	default:
		m := events.DocMeta{Owner: g.owner()}
		if g.n(1) == 0 {
			m.ExpiresAt = events.Timestamp(g.around().Format(time.RFC3339Nano))
		}
		e = e.WithExtension(events.ExtDoc, m.String())
	}
	g.append(e)
}

// other draws an event without effect.
func (g *workDrawer) other() {
	id := g.of("s", "inbox/a", "agent/a", "flow/f", "queue/q", "lock/doc/1", "queue", "item/q/9")
	switch g.n(2) {
	case 0:
		g.add(id, &events.SessionRewound{To: 1})
	case 1:
		g.append(events.Event{Type: events.TypeSessionUpdated, Subject: events.Session("", id), ContentType: events.ContentTypeJSON, Data: []byte(`{"set":{"status":`)})
	default:
		g.append(events.Event{Type: "com.example.thing", Subject: events.Session("", id), ContentType: events.ContentTypeJSON, Data: []byte(`{}`)})
	}
}

func (g *workDrawer) add(id string, p events.Payload) {
	e, err := events.New("urn:test", events.Session("", id), p)
	if err != nil {
		g.t.Fatal(err)
	}
	g.append(e)
}

func (g *workDrawer) append(e events.Event) {
	g.at += events.Offset(1 + g.n(1))
	g.clock = g.clock.Add(time.Duration(g.n(60)) * time.Second / 3)
	if e.Subject.Namespace == events.DefaultNamespace && g.n(9) == 0 {
		e.Subject.Namespace = "elsewhere"
	}
	e.Source, e.ID, e.Time = "urn:test", fmt.Sprintf("event-%d", g.at), g.clock
	g.records = append(g.records, events.Record{Event: e, Offset: g.at, Recorded: g.clock})
}

// workModel is the expected content, from the folds of package projector and a check of every subject.
type workModel struct {
	ns     string
	now    time.Time
	queues map[string]*projector.Work
	mail   projector.Mail
	agents map[string]*modelAgent
	flows  map[string]*modelFlow
	docs   map[events.Subject]*projector.Document
}

type modelAgent struct {
	*projector.Ledger
	went time.Time // zero: it is present
}

type modelFlow struct {
	projector.Run
	held  bool
	ended time.Time
	left  []projector.Due // flows that its state started and that ended without completing
}

func workModelOf(records testkit.Records, ns string) *workModel {
	m := &workModel{ns: ns, queues: map[string]*projector.Work{}, agents: map[string]*modelAgent{}, flows: map[string]*modelFlow{}, docs: map[events.Subject]*projector.Document{}}
	for _, q := range []string{"q", "q/1", "merge"} {
		m.queues[q] = projector.NewWork(ns, q, false)
	}
	sessions := map[events.Subject]*projector.Session{}
	for _, rec := range records {
		m.now = rec.Recorded
		if rec.Subject.Namespace != ns {
			continue
		}
		f := projector.Decode(rec)
		for _, q := range m.queues {
			if q.Concerns(rec.Subject) {
				q.Apply(f)
			}
		}
		m.mail.Apply(f)
		if !rec.Subject.IsSession() {
			m.document(rec)
			continue
		}
		s := sessions[rec.Subject]
		if s == nil {
			s = projector.NewSession(rec.Subject)
			sessions[rec.Subject] = s
		}
		s.Apply(f)
		m.agent(s, rec)
		m.flow(f)
	}
	return m
}

func (m *workModel) document(rec events.Record) {
	d := m.docs[rec.Subject]
	if d == nil {
		d = &projector.Document{Subject: rec.Subject}
		m.docs[rec.Subject] = d
	}
	d.Apply(rec)
}

func (m *workModel) agent(s *projector.Session, rec events.Record) {
	id, ok := cutPrefix(rec.Subject.ID, "agent/")
	if !ok {
		return
	}
	a := m.agents[id]
	if a == nil {
		a = &modelAgent{Ledger: s.Ledger}
		m.agents[id] = a
	}
	switch gone := projector.IsGone(s.Ledger.Text("status")); {
	case !gone:
		a.went = time.Time{}
	case a.went.IsZero():
		a.went = rec.Recorded
	}
}

func (m *workModel) flow(f projector.Fact) {
	id, ok := cutPrefix(f.Subject.ID, "flow/")
	if !ok {
		return
	}
	l := m.flows[id]
	if l == nil {
		l = &modelFlow{Run: projector.Run{Kind: "workflow", ID: id}}
		m.flows[id] = l
	}
	ref := projector.RunOf(f.Payload)
	if f.Invalid != nil || ref == nil || *ref != l.Ref() {
		return
	}
	refused := len(l.Fenced)
	l.Run.Apply(f)
	if len(l.Fenced) > refused {
		return
	}
	if p, ok := f.Payload.(*events.RunStarted); ok {
		l.held = p.Worker != ""
	}
	if p, ok := f.Payload.(*events.RunProgressed); ok && p.LeaseUntil != nil && *p.LeaseUntil == 0 {
		l.held = false
	}
	if p, ok := f.Payload.(*events.RunProgressed); ok && p.State != nil {
		l.left = nil
	}
	if len(l.Results) == 0 || !l.ended.IsZero() {
		return
	}
	l.ended, l.left = f.Recorded, nil
	if l.Parent == nil || l.Last().Outcome == "completed" {
		return
	}
	if id, ok := cutPrefix(l.Parent.Session, "flow/"); ok && m.flows[id] != nil && m.flows[id].ended.IsZero() {
		m.flows[id].left = append(m.flows[id].left, projector.Due{What: projector.DueFlow, Subject: events.Session(m.ns, l.Parent.Session), At: ceiling(f.Recorded), About: f.Offset})
	}
}

// ceiling rounds a time up to milliseconds.
func ceiling(at time.Time) time.Time {
	return time.Unix(0, (at.UnixNano()+999_999)/1_000_000*1_000_000)
}

func cutPrefix(id, prefix string) (string, bool) {
	if len(id) > len(prefix) && id[:len(prefix)] == prefix {
		return id[len(prefix):], true
	}
	return "", false
}

// went returns when an owner or receiver left, or the zero time.
func (m *workModel) went(owner string) time.Time {
	if id, ok := cutPrefix(owner, "flow/"); ok {
		if l := m.flows[id]; l != nil {
			return l.ended
		}
		return time.Time{}
	}
	id, ok := cutPrefix(owner, "agent/")
	if !ok {
		id = owner
	}
	if a := m.agents[id]; a != nil && a.Kind == events.KindAgent {
		return a.went
	}
	return time.Time{}
}

// inboxWent returns when a receiver left according to its inbox, by reading the log.
func inboxWent(records testkit.Records, ns, receiver string) (went time.Time) {
	for _, rec := range records.Of(projector.InboxSubject(ns, receiver)) {
		if s := projector.InboxFieldsOf(projector.Decode(rec)).Status; s != nil {
			if !projector.IsGone(*s) {
				went = time.Time{}
			} else if went.IsZero() {
				went = rec.Recorded
			}
		}
	}
	return went
}

// due lists due entries by checking every subject.
func (m *workModel) due(records testkit.Records, what string) (list []projector.Due) {
	add := func(sub events.Subject, at time.Time, about events.Offset) {
		list = append(list, projector.Due{What: what, Subject: sub, At: ceiling(at), About: about})
	}
	switch what {
	case projector.DueQueue:
		for id, q := range m.queues {
			var first time.Time
			for _, i := range q.Items {
				for _, at := range itemLooks(q, i) {
					if first.IsZero() || at.Before(first) {
						first = at
					}
				}
			}
			if !first.IsZero() {
				add(events.Session(m.ns, "queue/"+id), first, 0)
			}
		}
	case projector.DueOverdue:
		for _, l := range m.mail.Open() {
			if at, ok := l.Deadline.Time(); ok {
				add(projector.InboxSubject(m.ns, l.From), at, l.Offset)
			}
		}
	case projector.DueGone:
		for receiver, in := range m.mail.Inboxes {
			at := m.receiverWent(records, receiver)
			if !at.IsZero() && slices.ContainsFunc(in.Unread(), m.isOwed) {
				add(projector.InboxSubject(m.ns, receiver), at, 0)
			}
		}
	case projector.DueHandover:
		for receiver, in := range m.mail.Inboxes {
			if h := in.Fields.HandOver; h != nil && h.At > in.Cursor() {
				if at, ok := h.Retry(); ok {
					add(projector.InboxSubject(m.ns, receiver), at, h.At)
				}
			}
		}
	case projector.DueFlow:
		for id, l := range m.flows {
			if l.Created != 0 && l.ended.IsZero() && l.held {
				add(events.Session(m.ns, "flow/"+id), time.UnixMilli(l.LeaseUntil), 0)
			}
			list = append(list, l.left...)
		}
	case projector.DueAgentLease, projector.DueAgentEnded, projector.DueAgentArchived:
		for id, a := range m.agents {
			if at, ok := a.due(what); ok {
				add(events.Session(m.ns, "agent/"+id), at, 0)
			}
		}
	case projector.DueDocument:
		for sub, d := range m.docs {
			if at, ok := expiry(d); ok {
				add(sub, at, 0)
			}
		}
	default:
		for sub, owner := range m.owners() {
			if at := m.went(owner); !at.IsZero() && (sub.Kind == "overlay") == (what == projector.DueOverlay) {
				add(sub, at, 0)
			}
		}
	}
	slices.SortFunc(list, compareDue)
	return list
}

// itemLooks returns the times at which time alone may change the state of an item.
func itemLooks(q *projector.Work, i *projector.QueueItem) (list []time.Time) {
	if i.IsDone() || i.IsDead() {
		return nil
	}
	if i.Fence != 0 {
		return []time.Time{time.UnixMilli(i.Until)} // a claim takes precedence
	}
	if at, ok := i.ExpiresAt.Time(); ok {
		list = append(list, at)
	}
	if limit := q.Queue.Settings.MaxAttempts; i.Attempts >= 5 || limit > 0 && i.Attempts >= limit {
		at, ok := i.DueAt.Time()
		if !ok {
			at = time.UnixMilli(0)
		}
		list = append(list, at)
	}
	return list
}

func (m *workModel) receiverWent(records testkit.Records, receiver string) time.Time {
	if a := m.agents[receiver]; receiver == "user" || a != nil && a.Kind == events.KindAgent {
		if receiver == "user" {
			return time.Time{}
		}
		return a.went
	}
	return inboxWent(records, m.ns, receiver)
}

// isOwed reports whether the sender of a letter may be notified: no inbox has an answer to it.
func (m *workModel) isOwed(l projector.Letter) bool {
	if l.From == "" || l.ID == "" || l.Amends != "" || l.About != nil {
		return false
	}
	in := m.mail.Inboxes[l.From]
	return in == nil || !slices.ContainsFunc(in.Letters, func(r projector.Letter) bool {
		from, id := r.Answers()
		return from == l.Receiver && id == l.ID && (r.Offset > l.Offset || r.Offset == l.Offset && r.Index >= l.Index)
	})
}

func (a *modelAgent) due(what string) (at time.Time, ok bool) {
	status := a.Text("status")
	when := func(name string) (time.Time, bool) { return events.Timestamp(a.Text(name)).Time() }
	_, finished := when("finishedAt")
	if _, purged := when("purgedAt"); purged || a.Kind != events.KindAgent {
		return at, false
	}
	switch what {
	case projector.DueAgentEnded:
		at, ok = when("finishedAt")
		return at, ok && len(status) > 8 && status[:8] == "stopped:"
	case projector.DueAgentArchived:
		at, ok = when("archivedAt")
		return at, ok && finished && status == "archived"
	}
	var lease struct{ Holder, Until string }
	raw, _ := a.Fields.Get("lease")
	if json.Unmarshal(raw, &lease) != nil || lease.Holder == "" {
		return at, false
	}
	if at, ok = events.Timestamp(lease.Until).Time(); !ok {
		at = time.UnixMilli(0)
	}
	return at, status == "working" || status == "waiting" || status == "verifying"
}

func expiry(d *projector.Document) (time.Time, bool) {
	if !d.Exists() {
		return time.Time{}, false
	}
	return d.Last().Meta.ExpiresAt.Time()
}

// owners maps subjects to their owners.
func (m *workModel) owners() map[events.Subject]string {
	list := map[events.Subject]string{}
	for sub, d := range m.docs {
		if d.Exists() && sub.Kind != "agent" && d.Last().Meta.Owner != "" {
			list[sub] = d.Last().Meta.Owner
		}
	}
	for id, l := range m.flows {
		if l.Created != 0 && l.ended.IsZero() && l.Owner != "" {
			list[events.Session(m.ns, "flow/"+id)] = l.Owner
		}
	}
	for queue, q := range m.queues {
		for id, i := range q.Items {
			if i.Run.Kind == "changeset" && i.Ended == 0 && i.Owner != "" {
				list[events.Session(m.ns, projector.ItemSession(queue, id))] = i.Owner
			}
		}
	}
	return list
}

// questionsOf lists the messages to which the asker awaits an answer, in log order.
func questionsOf(ctx context.Context, r WorkReader, namespace, asker string) ([]MessageListed, error) {
	rows, err := r.db.QueryContext(ctx, "SELECT "+messageColumns+` FROM questions a JOIN messages m ON m.namespace=a.namespace AND m.inbox=a.asked
		AND m.offset=a.offset AND m.number=a.number WHERE a.namespace=? AND a.asker=? ORDER BY m.offset, m.number`, namespace, asker)
	return collect(rows, err, (*MessageListed).columns)
}

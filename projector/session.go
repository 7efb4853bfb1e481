package projector

import (
	"github.com/tallylog/tally/events"
)

// Session is a session at a position: its history up to there, the threads in effect, and its ledger at that point.
type Session struct {
	Subject events.Subject
	History *History
	Threads Threads
	Ledger  *Ledger
	Damaged []events.Offset // records that could not be read; they are not folded
}

// NewSession returns a session without records.
func NewSession(sub events.Subject) *Session {
	return &Session{Subject: sub, History: newHistory(sub), Threads: make(Threads), Ledger: newLedger(sub)}
}

// Offset returns the offset of the session's last record, or 0.
func (s *Session) Offset() events.Offset { return s.History.Last() }

// Apply folds the next record onto history and ledger, and returns its verdict. The caller updates the threads, because
// it knows which records they are folded from. The caller also handles the records that a fork inherits.
func (s *Session) Apply(f Fact) Verdict {
	return sure(foldNext(&s.History.Timeline, s.Ledger, s.History.Bounded(f)))
}

// foldNext applies the next record to a timeline and a ledger.
func foldNext(t *Timeline, l *Ledger, f Fact) (Verdict, error) {
	before := t.Last()
	f = f.Impossible(l.Kind, l.Created, before)
	v, err := t.Add(f)
	if err == nil {
		l.apply(f, v, before)
	}
	return v, err
}

// InEffect reports whether a record of the session, or one that it inherited, is in effect after the session's last
// record. A rejected record never is. An event that moves with the threads is while it is live, also in a fork that
// inherited it. Any other event belongs to the ledger of the session that it was appended to, and always is in effect
// there. moves reports whether a type of another vocabulary moves with the threads; nil: none does.
func (s *Session) InEffect(rec events.Record, moves func(typ string) bool) bool {
	return inEffect(s.Subject, s.Ledger, s.History.IsLive(rec.Offset), rec, moves)
}

// InEffect is Session.InEffect for the session's own records.
func (o *Outline) InEffect(rec events.Record, moves func(typ string) bool) bool {
	return inEffect(o.s.subject, o.s.ledger, o.IsLive(rec.Offset), rec, moves)
}

func inEffect(sub events.Subject, l *Ledger, isLive bool, rec events.Record, moves func(string) bool) bool {
	switch {
	case rec.Subject != sub:
		return isLive && isMoved(rec.Type, moves) // only records that counted at the fork were inherited as live
	case l.rejects(rec.Offset):
		return false
	}
	return isLive || !isMoved(rec.Type, moves)
}

func isMoved(typ string, moves func(string) bool) bool {
	return events.IsThread(typ) || moves != nil && !events.IsKnown(typ) && moves(typ)
}

// Withdrawn reports whether the event that made a run or a checkpoint is not live.
func (s *Session) Withdrawn(made events.Offset) bool { return !s.History.IsLive(made) }

// OnBranch returns the sum of the live costs: those of the current threads.
func (s *Session) OnBranch() Total {
	var t Totals[struct{}]
	for _, c := range s.Ledger.Costs {
		if s.History.IsLive(c.CountsAt()) {
			t.Add(struct{}{}, c)
		}
	}
	return t.Of(struct{}{})
}

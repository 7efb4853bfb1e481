package projector

import (
	"github.com/tallylog/tally/events"
)

// Session is a session at a position: its history up to there, the threads in
// effect, and its ledger as of then.
type Session struct {
	Subject events.Subject
	History *History
	Threads Threads
	Ledger  *Ledger
	Damaged []events.Offset // records that could not be read and so are not folded
}

// NewSession returns a session without records.
func NewSession(sub events.Subject) *Session {
	return &Session{Subject: sub, History: newHistory(sub), Threads: make(Threads), Ledger: newLedger(sub)}
}

// Offset is the offset of the session's last record, 0 if it has none.
func (s *Session) Offset() events.Offset { return s.History.Last() }

// Apply folds the next record onto history and ledger, and says what it is. The
// threads are left to the caller, who knows which records they are folded over, and
// so is what a fork inherits.
func (s *Session) Apply(f Fact) Verdict {
	return sure(fold(&s.History.Timeline, s.Ledger, s.History.Bounded(f)))
}

// fold applies the next record to timeline and ledger.
func fold(t *Timeline, l *Ledger, f Fact) (Verdict, error) {
	before := t.Last()
	f = f.Impossible(l.Kind, l.Created, before)
	v, err := t.Add(f)
	if err == nil {
		l.apply(f, v, before)
	}
	return v, err
}

// Withdrawn reports whether the event that made a run or a checkpoint is not
// live.
func (s *Session) Withdrawn(made events.Offset) bool { return !s.History.IsLive(made) }

// OnBranch sums the costs that are live: what led to the threads as they are now.
func (s *Session) OnBranch() Total {
	var t Totals[struct{}]
	for _, c := range s.Ledger.Costs {
		if s.History.IsLive(c.CountsAt()) {
			t.Add(struct{}{}, c)
		}
	}
	return t.Of(struct{}{})
}

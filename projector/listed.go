package projector

import (
	"cmp"
	"context"
	"slices"

	"github.com/tallylog/tally/events"
)

// SessionQuery selects sessions for a list. Fields that are zero select all.
type SessionQuery struct {
	Namespace string // "": the namespace of whoever is asked
	Kind      string
	Stored    bool // only those with a record that has them as their maker stored them
	Newest    bool // those that began last first, by their makers' clocks; those of one time, and else all, by their ids
	Limit     int
	Settings  bool // with the settings of their runs, which else are left out
}

// Page makes of all sessions, by their ids, those that a query selects.
func (q SessionQuery) Page(all []Listed) (list []Listed) {
	for _, s := range all {
		if s.Kind == "" || q.Kind != "" && s.Kind != q.Kind || q.Stored && s.Raw == 0 {
			continue
		}
		if !q.Settings {
			s.Settings = nil
		}
		list = append(list, s)
	}
	if q.Newest {
		slices.SortStableFunc(list, func(a, b Listed) int { return cmp.Compare(b.Began, a.Began) })
	}
	if q.Limit > 0 && len(list) > q.Limit {
		list = list[:q.Limit]
	}
	return list
}

// Listed is a session as a list has it.
type Listed struct {
	ID       string
	Kind     string
	Began    events.Timestamp // as it says; "": it does not
	Results  map[string]int   // runs with a result, by their kind
	Raw      events.Offset    // the newest record that has the session as its maker stored it; 0: none
	Settings []RunSetting     // of its runs that have one
}

// RunSetting is the setting of a run as a list has it.
type RunSetting struct {
	Run       events.RunRef
	Offset    events.Offset    // of the record that has it
	TouchedAt events.Timestamp // when it was changed last; "": never
}

// Listed folds a session for a list. One without a record that can be read has no kind.
func (l *Loader) Listed(ctx context.Context, sub events.Subject) (Listed, error) {
	o, err := l.Peek(ctx, sub)
	if err = Tolerate(err); err != nil || o.Ledger().Records == 0 {
		return Listed{ID: sub.ID}, err
	}
	list := Listed{ID: sub.ID, Kind: o.Ledger().Kind, Began: o.Ledger().began(), Results: make(map[string]int), Settings: o.Ledger().Settings()}
	for _, at := range o.Ledger().Raw {
		list.Raw = max(list.Raw, at)
	}
	for _, r := range o.Ledger().Runs {
		if r.Last() != nil {
			list.Results[r.Kind]++
		}
	}
	return list, nil
}

// began is when the session began, as it says: its field startedAt, else when it was
// created.
func (l *Ledger) began() events.Timestamp {
	return cmp.Or(events.Timestamp(l.Text("startedAt")), l.CreatedAt)
}

// Settings lists the settings of the session's runs, by the identities of these.
func (l *Ledger) Settings() (list []RunSetting) {
	for _, r := range l.Runs {
		if r.Setting != 0 {
			list = append(list, RunSetting{r.Ref(), r.Setting, r.TouchedAt})
		}
	}
	slices.SortFunc(list, func(a, b RunSetting) int {
		return cmp.Or(cmp.Compare(a.Run.Kind, b.Run.Kind), cmp.Compare(a.Run.ID, b.Run.ID))
	})
	return list
}

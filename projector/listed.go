package projector

import (
	"cmp"
	"context"
	"slices"

	"github.com/tallylog/tally/events"
)

// SessionQuery selects sessions for a list. A zero field selects all.
type SessionQuery struct {
	Namespace string // "": the namespace of the store or view that answers
	Kind      string
	Stored    bool // only sessions with a record of their original file
	Newest    bool // newest start first, by the producers' clocks; ties, and lists without Newest, are ordered by id
	Limit     int
	Settings  bool // include the settings of their runs
}

// Page returns the selected sessions. all must be sorted by id.
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

// Listed is an entry of a session list.
type Listed struct {
	ID       string
	Kind     string
	Began    events.Timestamp // by the session's own data; "": unknown
	Results  map[string]int   // number of runs with a result, by kind
	Raw      events.Offset    // the newest record with the session's original file; 0: none
	Settings []RunSetting     // of the runs that have a setting
}

// RunSetting is an entry of a list of run settings.
type RunSetting struct {
	Run       events.RunRef
	Offset    events.Offset    // of the record that holds it
	TouchedAt events.Timestamp // time of the last change; "": never changed
}

// Listed folds a session for a list. If the session has no readable record, its kind is "".
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

// began returns the start of the session: its field startedAt, else its creation time.
func (l *Ledger) began() events.Timestamp {
	return cmp.Or(events.Timestamp(l.Text("startedAt")), l.CreatedAt)
}

// Settings lists the settings of the session's runs, ordered by run kind and id.
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

package tally

import (
	"context"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
)

// Retention says how long sessions of a namespace are kept after their last record, by the log's time.
type Retention struct {
	Namespace string        // "": all that no other Retention names
	Sessions  time.Duration // of the kinds conversation and transcript; 0: for ever
	Jobs      time.Duration // of the kind job; 0: for ever
}

// Due returns the selections that rules forget now. Sessions without content may be among it: forgetting them again does
// nothing.
func (st *Store) Due(ctx context.Context, rules []Retention) (list []Forget, err error) {
	now, err := st.LogTime(ctx)
	if err != nil {
		return nil, err
	}
	var names []string // of namespaces
	for info, err := range st.Log.Subjects(ctx, "", events.KindSession) {
		if err != nil {
			return nil, err
		}
		if ns := info.Subject.Namespace; ns != events.PersonalNamespace && !slices.Contains(names, ns) {
			names = append(names, ns)
		}
	}
	slices.Sort(names)
	for _, ns := range names {
		i := slices.IndexFunc(rules, func(r Retention) bool { return r.Namespace == ns })
		if i < 0 {
			i = slices.IndexFunc(rules, func(r Retention) bool { return r.Namespace == "" })
		}
		if i < 0 {
			continue
		}
		for _, w := range []struct {
			window time.Duration
			kinds  []string
		}{{rules[i].Sessions, []string{events.KindConversation, events.KindTranscript}}, {rules[i].Jobs, []string{events.KindJob}}} {
			if w.window > 0 {
				list = append(list, Forget{Namespace: ns, Before: now.Add(-w.window), Kinds: w.kinds, Reason: "older than " + w.window.String()})
			}
		}
	}
	return list, nil
}

package quota

import (
	"context"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Read counts the live documents of a log. Values by reference have at most maxValue bytes; 0 means events.MaxValue.
func Read(ctx context.Context, src Source, maxValue int64, limits Limits) ([]projector.Usage, error) {
	if maxValue == 0 {
		maxValue = events.MaxValue
	}
	list, err := readAll(ctx, src, maxValue)
	if err != nil {
		return nil, err
	}
	live := make(sums)
	for _, d := range list {
		live.add(d.sub, d.head, 1)
	}
	return live.usage(limits), nil
}

// Total sums up the live documents that a view lists.
func Total(list []projector.Live, limits Limits) []projector.Usage {
	live := make(sums)
	for _, l := range list {
		for _, scope := range scopesOf(l.Owner, l.Kind) {
			live.put(scope, sum{l.Documents, l.Bytes})
		}
	}
	return live.usage(limits)
}

// usage lists the scopes that have documents or a limit: the store, then owners, then kinds, each by name.
func (s sums) usage(limits Limits) []projector.Usage {
	of := func(scope string) projector.Usage {
		return projector.Usage{Scope: scope, Documents: s[scope].documents, Bytes: s[scope].bytes, Limit: limits[scope]}
	}
	var list []projector.Usage
	for scope := range s {
		list = append(list, of(scope))
	}
	for scope := range limits {
		if _, listed := s[scope]; !listed {
			list = append(list, of(scope))
		}
	}
	list = slices.DeleteFunc(list, func(u projector.Usage) bool { return u.Scope == Store })
	slices.SortFunc(list, func(a, b projector.Usage) int { return strings.Compare(order(a.Scope), order(b.Scope)) })
	return append([]projector.Usage{of(Store)}, list...)
}

// order returns a key that sorts owners before kinds.
func order(scope string) string {
	if strings.HasPrefix(scope, kind) {
		return "~" + scope
	}
	return scope
}

// scopesOf returns the scopes in which a document counts.
func scopesOf(of, kindOf string) [3]string { return [3]string{Store, owner + of, kind + kindOf} }

package taverndir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern/internal/layers"
)

// selectable returns the kinds that have files.
func selectable() []string {
	list := []string{events.KindAgent, events.KindFile}
	for _, b := range boxes {
		list = append(list, b.kind)
	}
	for _, k := range kinds {
		list = append(list, k.kind)
	}
	slices.Sort(list)
	return list
}

// layerAll selects files of every layer.
const layerAll = "all"

// Select implements layouts.Selector. The default layer is the project's: personal and vendor subjects do not go into a
// folder that travels with a repository. A tree of the personal layer alone is refused, because new files there would
// be the project's.
func (l Layout) Select(only []string, layer string) (layouts.Layout, error) {
	for _, k := range only {
		if !slices.Contains(selectable(), k) {
			return nil, &events.InvalidError{Field: "kinds", Reason: fmt.Sprintf("%q: want some of %s", k, strings.Join(selectable(), ", "))}
		}
	}
	switch layer {
	case "", layers.Project:
		l.layer = layers.Project
	case layerAll:
		l.layer = ""
	default:
		return nil, &events.InvalidError{Field: "layer", Reason: fmt.Sprintf("%q: want %s or %s", layer, layers.Project, layerAll)}
	}
	l.kinds = slices.Clone(only)
	return l, nil
}

// hasKind reports whether the layout has files of an entry's kind.
func (l Layout) hasKind(entry events.Subject) bool {
	kind := entry.Kind
	if entry.IsSession() {
		kind, _, _ = strings.Cut(entry.ID, "/")
	}
	return l.isKind(kind)
}

func (l Layout) isKind(kind string) bool {
	return len(l.kinds) == 0 || slices.Contains(l.kinds, kind)
}

// has reports whether an entry, existing or new, has files.
func (l Layout) has(ctx context.Context, src layouts.Source, entry events.Subject) (bool, error) {
	if !l.hasKind(entry) || l.layer == "" {
		return l.hasKind(entry), nil
	}
	is, err := layers.Has(ctx, src.Loader(), l.layer, entry)
	if is || err != nil || entry.IsSession() {
		return is, err
	}
	_, err = src.Loader().Document(ctx, entry, 0)
	if errors.Is(err, projector.ErrNotFound) {
		return layers.Of(entry.Kind) == l.layer, nil
	}
	return false, err
}

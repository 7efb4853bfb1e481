package layouttest

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
)

// CheckGrowth holds what a layout says that the files of units grow by to what they are, between
// any two records of a unit, with what came of other subjects. It returns how often the layout
// knew. What it finds it finds also by what it found before.
func CheckGrowth(t testing.TB, st layouts.Target, l layouts.Grower, root layouts.Root) (known int) {
	t.Helper()
	all := make(map[events.Subject][]events.Record)
	for rec, err := range st.Loader().Source.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		unit, ok, err := l.Entry(t.Context(), asOfOffset(st, rec.Offset), root, rec.Subject)
		switch {
		case err != nil:
			t.Fatal(err)
		case ok:
			all[unit] = append(all[unit], rec)
		}
	}
	for unit, records := range all {
		at := make([]*Shown, len(records))
		for i, rec := range records {
			p, err := l.Location(t.Context(), asOfOffset(st, rec.Offset), root, unit)
			if errors.Is(err, projector.ErrNotFound) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			at[i] = EntryFiles(t, asOfOffset(st, rec.Offset), l, root, unit, p.Path)
		}
		for i, first := range records {
			var before any // found as of the first
			for j := i; j < len(records) && at[i] != nil; j++ {
				others := othersOf(unit, records[i+1:j+1])
				g, ok := checkGrowth(t, l, asOfOffset(st, records[j].Offset), root, first.Offset, others, nil, at[i], at[j])
				if ok {
					known++
				}
				if j == i {
					before = g.Known
				} else if before != nil {
					checkGrowth(t, l, asOfOffset(st, records[j].Offset), root, first.Offset, others, before, at[i], at[j])
				}
			}
		}
	}
	return known
}

// othersOf returns the subjects of records that are not those of a unit itself.
func othersOf(unit events.Subject, records []events.Record) (list []events.Subject) {
	for _, rec := range records {
		if rec.Subject != unit && !slices.Contains(list, rec.Subject) {
			list = append(list, rec.Subject)
		}
	}
	return list
}

func checkGrowth(t testing.TB, l layouts.Grower, src layouts.Source, root layouts.Root, since events.Offset, others []events.Subject, before any, was, is *Shown) (g layouts.Growth, known bool) {
	t.Helper()
	g, ok, err := l.Growth(t.Context(), src, root, was.Unit, was.At, since, others, before)
	if err != nil && !errors.Is(err, projector.ErrNotFound) {
		t.Fatal(err)
	}
	if err != nil || !ok {
		return g, false
	}
	files, modes := maps.Clone(was.Files), maps.Clone(was.Modes)
	for _, a := range g.Added {
		if _, there := files[a.Path]; !there && !a.New {
			t.Errorf("%s: %s is said to be there", was.Unit, a.Path)
		}
		if a.New {
			files[a.Path], modes[a.Path] = "", a.Mode
		}
		files[a.Path] += string(a.Data)
	}
	if is == nil || is.At != was.At || !maps.Equal(modes, is.Modes) || !maps.Equal(files, is.Files) {
		have := &Shown{was.Unit, was.At, files, modes}
		t.Errorf("%s since %v grew to\n%v, and is\n%v", was.Unit, since, have, is)
	}
	return g, true
}

// asOfOffset is a store as it was as of an offset.
func asOfOffset(st layouts.Target, at events.Offset) *past {
	l := st.Loader()
	return &past{st, &projector.Loader{Source: l.Source, Snapshots: l.Snapshots, MaxValue: l.MaxValue, ReadOnly: true, Upto: at}}
}

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

// CheckGrowth compares the growth of files that a layout reports with the files themselves, between any two records
// of an entry, and with records of other subjects. It returns how often the layout could report a growth. Each call
// also passes what the previous one found.
func CheckGrowth(t testing.TB, st layouts.Target, l layouts.Grower, root layouts.Root) (known int) {
	t.Helper()
	all := make(map[events.Subject][]events.Record)
	for rec, err := range st.Loader().Source.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		entry, ok, err := l.Entry(t.Context(), asOfOffset(st, rec.Offset), root, rec.Subject)
		switch {
		case err != nil:
			t.Fatal(err)
		case ok:
			all[entry] = append(all[entry], rec)
		}
	}
	for entry, records := range all {
		at := make([]*Shown, len(records))
		for i, rec := range records {
			p, err := l.Location(t.Context(), asOfOffset(st, rec.Offset), root, entry)
			if errors.Is(err, projector.ErrNotFound) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			at[i] = EntryFiles(t, asOfOffset(st, rec.Offset), l, root, entry, p.Path)
		}
		for i, first := range records {
			var before any // found as of the first
			for j := i; j < len(records) && at[i] != nil; j++ {
				others := othersOf(entry, records[i+1:j+1])
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

// othersOf returns the subjects of records other than the entry itself.
func othersOf(entry events.Subject, records []events.Record) (list []events.Subject) {
	for _, rec := range records {
		if rec.Subject != entry && !slices.Contains(list, rec.Subject) {
			list = append(list, rec.Subject)
		}
	}
	return list
}

func checkGrowth(t testing.TB, l layouts.Grower, src layouts.Source, root layouts.Root, since events.Offset, others []events.Subject, before any, was, is *Shown) (g layouts.Growth, known bool) {
	t.Helper()
	g, ok, err := l.Growth(t.Context(), src, root, was.Entry, was.At, since, others, before)
	if err != nil && !errors.Is(err, projector.ErrNotFound) {
		t.Fatal(err)
	}
	if err != nil || !ok {
		return g, false
	}
	files, modes := maps.Clone(was.Files), maps.Clone(was.Modes)
	for _, a := range g.Added {
		if _, there := files[a.Path]; !there && !a.New {
			t.Errorf("%s: the growth names the missing file %s", was.Entry, a.Path)
		}
		if a.New {
			files[a.Path], modes[a.Path] = "", a.Mode
		}
		files[a.Path] += string(a.Data)
	}
	if is == nil || is.At != was.At || !maps.Equal(modes, is.Modes) || !maps.Equal(files, is.Files) {
		have := &Shown{was.Entry, was.At, files, modes}
		t.Errorf("%s since %v grew to\n%v, want\n%v", was.Entry, since, have, is)
	}
	return g, true
}

// asOfOffset returns the store as of an offset.
func asOfOffset(st layouts.Target, at events.Offset) *past {
	l := st.Loader()
	return &past{st, &projector.Loader{Source: l.Source, Snapshots: l.Snapshots, MaxValue: l.MaxValue, ReadOnly: true, Upto: at}}
}

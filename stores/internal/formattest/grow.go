package formattest

import (
	"errors"
	"maps"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/projector"
)

// CheckGrowth holds what a layout says that the files of units grow by to what they are, between
// any two records of a unit that nothing of another subject came between. It returns how often
// the layout knew. What it finds it finds also by what it found before.
func CheckGrowth(t testing.TB, st formats.Target, l formats.Grower, root formats.Root) (known int) {
	t.Helper()
	own := make(map[events.Subject][]events.Offset)
	other := make(map[events.Subject][]events.Offset)
	for rec, err := range st.Loader().Source.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		unit, ok, err := l.Unit(t.Context(), asOfOffset(st, rec.Offset), root, rec.Subject)
		switch {
		case err != nil:
			t.Fatal(err)
		case ok && unit == rec.Subject:
			own[unit] = append(own[unit], rec.Offset)
		case ok:
			other[unit] = append(other[unit], rec.Offset)
		}
	}
	for unit, offsets := range own {
		at := make([]*Shown, len(offsets))
		for i, offset := range offsets {
			p, err := l.Place(t.Context(), asOfOffset(st, offset), root, unit)
			if errors.Is(err, projector.ErrNotFound) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			at[i] = UnitFiles(t, asOfOffset(st, offset), l, root, unit, p.Path)
		}
		for i, since := range offsets {
			var before any // found as of since
			for j := i; j < len(offsets) && at[i] != nil && !anyWithin(other[unit], since, offsets[j]); j++ {
				g, ok := checkGrowth(t, l, asOfOffset(st, offsets[j]), root, since, nil, at[i], at[j])
				if ok {
					known++
				}
				if j == i {
					before = g.Known
				} else if before != nil {
					checkGrowth(t, l, asOfOffset(st, offsets[j]), root, since, before, at[i], at[j])
				}
			}
		}
	}
	return known
}

func anyWithin(offsets []events.Offset, after, upto events.Offset) bool {
	for _, at := range offsets {
		if at > after && at <= upto {
			return true
		}
	}
	return false
}

func checkGrowth(t testing.TB, l formats.Grower, src formats.Source, root formats.Root, since events.Offset, before any, was, is *Shown) (g formats.Growth, known bool) {
	t.Helper()
	g, ok, err := l.Growth(t.Context(), src, root, was.Unit, was.At, since, before)
	if err != nil && !errors.Is(err, projector.ErrNotFound) {
		t.Fatal(err)
	}
	if err != nil || !ok {
		return g, false
	}
	files, modes := maps.Clone(was.Files), maps.Clone(was.Modes)
	for _, a := range g.Added {
		if _, there := files[a.Path]; there == a.New {
			t.Errorf("%s: %s is said to be new (%v)", was.Unit, a.Path, a.New)
		}
		if files[a.Path] += string(a.Data); a.New {
			modes[a.Path] = a.Mode
		}
	}
	if is == nil || is.At != was.At || !maps.Equal(modes, is.Modes) || !maps.Equal(files, is.Files) {
		have := &Shown{was.Unit, was.At, files, modes}
		t.Errorf("%s since %v grew to\n%v, and is\n%v", was.Unit, since, have, is)
	}
	return g, true
}

// asOfOffset is a store as it was as of an offset.
func asOfOffset(st formats.Target, at events.Offset) *past {
	l := st.Loader()
	return &past{st, &projector.Loader{Source: l.Source, Snapshots: l.Snapshots, MaxValue: l.MaxValue, ReadOnly: true, Upto: at}}
}

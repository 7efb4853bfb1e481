package catalog

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// View describes a view of a store. Each view has a file of its own.
type View struct {
	Name string
	File string         // name of the file, in the directory of the store
	Pace projector.Pace // pace of the process that keeps the view

	own   bool // a program brings it
	types []events.Type
	older []events.Type // that the types read
	err   error         // why it cannot be kept
	form  form
	open  func(path, set string, lg *slog.Logger) Edition
}

// Views returns all views, the catalog first. All code that keeps, rebuilds, compares or lists views uses this list.
// opening and text extract the descriptions of sessions and turns.
func Views(opening Opening, text Text) []View {
	return []View{
		{Name: catalogForm.view, File: FileName, form: catalogForm,
			open: func(path, set string, lg *slog.Logger) Edition { return newCatalog(path, set, opening, lg) }},
		{Name: searchForm.view, File: SearchFileName, Pace: projector.Patient, form: searchForm,
			open: func(path, set string, lg *slog.Logger) Edition { return newSearch(path, set, text, lg) }},
		{Name: workForm.view, File: WorkFileName, Pace: projector.Patient, form: workForm,
			open: func(path, set string, lg *slog.Logger) Edition { return newWork(path, set, lg) }},
	}
}

// New returns the view in a directory, for a projector.Runner.
func (v View) New(dir string, lg *slog.Logger) Edition {
	return v.open(filepath.Join(dir, v.File), current, lg)
}

// Next returns the second edition of the view in a directory. It continues an unfinished edition.
func (v View) Next(dir string, lg *slog.Logger) Edition {
	return v.open(filepath.Join(dir, v.File), nextSet, lg)
}

// viewIn returns the view of a name: one of tally's, or an own view that has a file in a directory, in its highest
// version. If there is no such view, the error is ErrNoView and events.ErrNotFound.
func viewIn(dir, name string) (View, error) {
	for _, v := range Views(nil, nil) {
		if v.Name == name {
			return v, nil
		}
	}
	list, err := OwnIn(dir)
	for _, f := range list {
		if f.Name == name {
			return f.view(), nil
		}
	}
	return View{}, cmp.Or(err, fmt.Errorf("%w: view %q: %w: tally has none, and there is no file of a program's view in %s", ErrNoView, name, events.ErrNotFound, dir))
}

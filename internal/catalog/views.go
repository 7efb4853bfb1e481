package catalog

import (
	"log/slog"
	"path/filepath"

	"github.com/tallylog/tally/projector"
)

// View is a view that a store keeps, each in a file of its own.
type View struct {
	Name string
	File string         // name of the file, in the directory of the store
	Pace projector.Pace // how the one that keeps it leaves the machine to those who append

	form form
	open func(path, set string, lg *slog.Logger) Edition
}

// Views are all views, the catalog first. Whatever keeps, rebuilds, compares or lists views
// does so with these. opening and text say what sessions and turns are about.
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

// New returns the view in a directory, to be run by a projector.Runner.
func (v View) New(dir string, lg *slog.Logger) Edition {
	return v.open(filepath.Join(dir, v.File), current, lg)
}

// Next returns the second edition of the view in a directory. One that was begun and not
// finished is gone on with.
func (v View) Next(dir string, lg *slog.Logger) Edition {
	return v.open(filepath.Join(dir, v.File), next, lg)
}

// named returns the view of a name, the catalog if there is none.
func named(name string) View {
	list := Views(nil, nil)
	for _, v := range list {
		if v.Name == name {
			return v
		}
	}
	return list[0]
}

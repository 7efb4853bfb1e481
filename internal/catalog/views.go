package catalog

import (
	"log/slog"
	"path/filepath"

	"github.com/tallylog/tally/projector"
)

// View describes a view of a store. Each view has a file of its own.
type View struct {
	Name string
	File string         // name of the file, in the directory of the store
	Pace projector.Pace // pace of the process that keeps the view

	form form
	open func(path, set string, lg *slog.Logger) Edition
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

// viewNamed returns the view of a name, or the catalog.
func viewNamed(name string) View {
	list := Views(nil, nil)
	for _, v := range list {
		if v.Name == name {
			return v
		}
	}
	return list[0]
}

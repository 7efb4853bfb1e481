// Package view makes views of a program's own: states and tables that are folded from the events of a store, and kept up
// to date beside tally's own views.
//
// A Fold has one state for each subject. An Own has tables in SQLite, for questions over many subjects. Both are values:
// Options.Views of package embedded has the list of a program's views.
//
// A fold gets only events that are in effect. If a rewind, a fork or a late event changes which events these are, the
// view folds the subject again from its first event. Functions of a view depend on nothing but their arguments, because
// they are called again after a crash. Each event is in one file of SQLite, with the progress of the view, all or none.
//
// One process keeps a view at a time: a program that has its code. If that ends, another program with the same view
// continues. A version is another view, with a file of its own: change the version when you change what Apply does with
// an event, or the types.
package view

// Package layouts holds what all foreign layouts on disk have in common: where
// files are put ([Storage], [Dir], and the packages below this one), how one session is rendered into files
// ([Layout], [Export]), how file names are made of ids ([FileName]), and what an
// import or export reports ([Report]). Each layout is a package of its own, below stores.
//
// Whatever a user put in comes out as it was: an export renders the state of the
// log, and writes for an imported file the bytes it had.
package layouts

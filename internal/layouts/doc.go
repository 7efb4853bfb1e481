// Package layouts has the parts that all layouts of files share: the storage of files ([Storage], [Dir], and the
// packages below this one), the rendering of a session into files ([Layout], [Export]), file names made of ids
// ([FileName]), and the report of an import or export ([Report]). Each layout is a package of its own, below stores.
//
// An export renders the state of the log. Imported files are written with the bytes that they had.
package layouts

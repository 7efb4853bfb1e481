// Package bucket keeps files in an object store of NATS JetStream, as its clients do: the name of an
// object is the path, and Metadata has the permission bits in octal, as mode, where they are not 644.
// Bytes of a name that are not UTF-8, which the store cannot have, are spelled =XX.
//
// A file is written in pieces first, and has its name when all are stored. So a file is replaced as a
// whole, and who reads it meanwhile has an error at worst: objects up to a megabyte are read again
// then. How many copies a server keeps, and whether it syncs them, is a matter of its settings.
//
// There is no swap: an object cannot be given another name in the same moment in which one comes
// there. What somebody else wrote between a look and a write is replaced, and the store has it no
// more; who cannot bear that writes into a bucket that nobody else writes to. Appends and writes that
// happen at once lose nothing of each other: each is one after the other.
//
// Folders are not there, only names: a list looks at all objects, and Walk finds them in one go. An
// object whose name is no path, or that is a link, is listed as what is neither file nor folder.
package bucket

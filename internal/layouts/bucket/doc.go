// Package bucket keeps files in an object store of NATS JetStream, in the form of its clients: the name of an object
// is the path, and the member mode of Metadata has the permission bits in octal if they are not 644. Bytes of a name
// that are not UTF-8 are written as =XX, because the store cannot hold them.
//
// A write stores the pieces first and then the name. So a file is replaced as a whole. A concurrent reader gets an
// error at worst; objects up to a megabyte are read again then. The server's settings decide how many copies it
// keeps, and whether it syncs them.
//
// There is no swap: the store cannot rename an object and put another one in its place in one step. If another writer
// changes a file between a read and a Write, its change is overwritten and lost. To rule that out, use a bucket
// without other writers. Concurrent appends and writes of this package lose nothing: each happens after the other.
//
// An object store has only names and no folders: a list looks at all objects, and Walk finds them in one pass. An
// object whose name is not a path, or that is a link, is listed as neither a file nor a folder.
package bucket

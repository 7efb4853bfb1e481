// Package redis keeps files in a Redis server, in the form in which tally-evals does.
//
// A file is a stream of one entry. Its key is a prefix and the path with a colon for each slash; its
// field content has the bytes. A second field, mode, has the permission bits in octal where they are
// not 644; tally-evals reads the first one only. Of a stream with several entries, which tally never
// writes, the content is that of all, with an end of line between.
//
// A name with a colon in it, which tally-evals takes for two names, is a pair of names: an empty one,
// and itself with =3A for each colon and =3D for each equals sign. So every path has its own key, and
// every key that tally-evals wrote for names without one is the path that it was.
// A key that is no path, and one below the prefix that is no stream, is listed as what is neither
// file nor folder.
//
// Each operation is one script, and so happens as a whole or not at all, also in the server's own
// file. What survives a crash of the server's machine is a matter of its settings (appendonly,
// appendfsync). An object is in memory as a whole, here and there, and has at most 512 MiB. Folders
// are not there, only names: a list looks at all keys of the database, and Walk finds all files in one
// go. Watch needs a server that tells of keys: notify-keyspace-events has to have K and A, or g and t.
//
// A server is trusted: what it answers is not bounded. A cluster of servers is not supported.
package redis

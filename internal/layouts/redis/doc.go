// Package redis keeps files in a Redis server, in the form of tally-evals.
//
// A file is a stream of one entry. Its key is a prefix and the path with a colon for each slash. Its field content
// has the bytes. A second field, mode, has the permission bits in octal if they are not 644; tally-evals reads only
// the first field. If a stream has several entries, which tally never writes, the content is that of all entries,
// separated by line ends.
//
// A name with a colon, which tally-evals treats as two names, becomes a pair of names: an empty one, and the name
// with =3A for each colon and =3D for each equals sign. So every path has its own key, and a key that tally-evals
// wrote for names without colons is the same path. A key below the prefix that is not a path, or not a stream, is
// listed as neither a file nor a folder.
//
// Each operation is one script, so it happens completely or not at all, also in the server's own file. The server's
// settings (appendonly, appendfsync) decide which writes survive a crash of its machine. Client and server hold an
// object in memory as a whole; it has at most 512 MiB. Redis has only keys and no folders: a list looks at all keys
// of the database, and Walk finds all files in one pass. Watch needs a server with keyspace notifications:
// notify-keyspace-events contains K, and A or g and t.
//
// The server is trusted: the size of its answers is not limited. A cluster of servers is not supported.
package redis

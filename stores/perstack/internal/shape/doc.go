// Package shape defines jobs, checkpoints, events and run settings of @perstack/storage: the original's schema, the
// names of their files, and their records in the log. Live writes and imports use it, so that they make the same
// records. It works on the JSON as stored: unknown members and the spelling of numbers stay.
package shape

// Package backup keeps copies of a directory in a folder: each is a manifest that names the
// files, whose contents are kept once by their hash. It knows nothing of stores.
//
//	DIR/objects/ab/ab3f...                      contents, named by their SHA-256
//	DIR/backups/20261122T150227.123Z-1f3a....json   a manifest, named by its time and its own SHA-256
//	DIR/backup.lock                             held by the one process that writes
//
// Contents are written beside their name, synced and renamed, and the manifest is written
// last, when all it names is on disk. Without it there is no backup: what a process that
// was ended left behind is found by the next one, which has the contents already, or is
// removed by [Writer.Keep].
package backup

// Package perstackdir reads and writes the folder of @perstack/storage, which persists what
// an agent runtime does:
//
//	perstack/jobs/<jobId>/
//	  job.json                                      one task of a user, two spaces, no newline at the end
//	  checkpoints/<checkpointId>.json               compact
//	  runs/<runId>/run-setting.json                 compact; holds keys of providers
//	  runs/<runId>/event-<ms>-<step>-<type>.json    compact
//
// A job becomes the session job/<jobId> of kind job. Its file is the raw value of
// session.created, then of session.updated; a checkpoint is a checkpoint of kind step; an
// event is one run.started, run.progressed or run.finished of the run expert/<runId>; a
// setting is that run's run.created. The messages that checkpoints and events repeat stand
// once, as turns, and are put together again when a file is rendered. A second event of the
// same name, which the original would have overwritten, is rendered as
// event-<ms>-<step>-<type>.2.json.
//
// The values of secrets in a setting are sealed under a key of the user's, see [Layout].
// Without the key, a setting with secrets does not go in, and comes out with placeholders.
//
// A file that does not come out of the state byte for byte, and every file that the layout
// does not know, is kept whole as a document of kind file besides, sealed if it may hold
// secrets. A file that is missing, such as the job.json of folders that the runtime itself
// writes, is not made up by an export. Importing is idempotent for ever: the folder is
// compared with what an export would write now, and only the difference becomes events.
package perstackdir

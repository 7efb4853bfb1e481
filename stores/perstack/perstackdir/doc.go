// Package perstackdir reads and writes the folder of @perstack/storage, which stores an agent runtime's jobs:
//
//	perstack/jobs/<jobId>/
//	  job.json                                      one task of a user, two spaces, no newline at the end
//	  checkpoints/<checkpointId>.json               compact
//	  runs/<runId>/run-setting.json                 compact; holds keys of providers
//	  runs/<runId>/event-<ms>-<step>-<type>.json    compact
//
// A job becomes the session job/<jobId> of kind job. Its file is the raw value of session.created, then of
// session.updated. A checkpoint is a checkpoint of kind step. An event is one run.started, run.progressed or
// run.finished of the run expert/<runId>. A setting is that run's run.created. Messages that checkpoints and events
// repeat are stored once, as turns, and restored when a file is rendered. The original overwrites an event with the
// same name; here the second one is rendered as event-<ms>-<step>-<type>.2.json.
//
// The values of secrets in a setting are sealed under the user's key, see [Layout]. Without the key, a setting with
// secrets is not imported, and is exported with placeholders.
//
// If a file cannot be rendered byte for byte, or the layout does not know it, it is kept whole as a document of kind
// file, sealed if it may hold secrets. An export does not create missing files, such as the job.json that the runtime
// itself does not write. Imports are idempotent: the folder is compared with what an export would write now, and only
// the difference becomes events.
package perstackdir

// Package pi reads the session files of pi, the coding agent.
//
// # Input
//
// Files <time>_<id>.jsonl below PI_CODING_AGENT_SESSION_DIR, and below sessions in PI_CODING_AGENT_DIR (else in
// ~/.pi/agent). They lie beside each other or in a folder for each working directory. A session is pi/<id>, with the
// id in the name.
//
// # What each line becomes
//
// A file is a header and a tree of entries {type, id, parentId, timestamp}: the conversation is the path from the
// root to the newest entry. The thread main has the lines of it that pi's screen shows: messages, visible messages of
// extensions, summaries of compactions and of abandoned branches. All other lines go to log.
//
//	the first line            session.created: kind transcript, cwd, project (the last folder
//	                          of it), agent and version of the format in settings; parent, the
//	                          session of which it is a copy
//	an entry whose parent is  session.rewound to the parent's position, or to after the
//	not the one before        header if there is no parent or the file does not have it
//	model_change, an answer   session.updated of models, if one is new
//	session_info              session.updated of title
//	a message of the user     run.created of kind turn
//	an answer that stops      run.finished: completed (stop, length), failed (error),
//	                          interrupted (aborted). After an error pi may retry: then the
//	                          next outcome is a newer version of it
//	an answer with usage      cost.accrued, in tokens and, if pi has prices, in dollars; the
//	                          response is its responseId, else a hash of the message. It
//	                          precedes the answer: a rewind to the answer keeps both
//
// pi writes the price 0 for models without a known price, so 0 is not a price. A compaction has no event: its line is
// stored, and the messages that the user saw stay.
//
// A fork is a copy: the file has its parent's entries, with their ids, under a header that names the parent's file.
// Here too they are turns. They begin no runs, and cost once in all, because they have the same responses. The
// session has the parent, and is not a fork by reference.
//
// Files of version 1 have no ids: each entry follows the one before. pi rewrites such a file when it opens it. If a
// session was opened that no model had answered, pi also appends a copy of the whole file: then the copies count, as
// they do for pi.
//
// # Verified versions
//
// Version 0.73.1 was run with a stand-in for the model: prompts, answers, errors. The rules for the tree and for
// copies are from its source and documents. Sessions written by its own session manager were read: trees, summaries,
// labels, forks, names; and a session of version 1 with 1,018 entries. Not seen in files: messages of extensions,
// bash commands by the user.
package pi

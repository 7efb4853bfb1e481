// Package pi says what the files mean in which pi, the coding agent, keeps its sessions.
//
// # What is read
//
// Below PI_CODING_AGENT_SESSION_DIR, and below sessions in PI_CODING_AGENT_DIR (else in
// ~/.pi/agent), files <time>_<id>.jsonl, beside each other or in a folder for each working
// directory. A session is pi/<id>, with the id in the name.
//
// # What each line becomes
//
// A file is a header and entries {type, id, parentId, timestamp}, which are a tree: the
// conversation is the path from the root to the newest entry. The thread main has what the
// screen shows of it: messages, messages of extensions that are to be seen, summaries of
// compactions and of branches that were left. Everything else stands in log.
//
//	the first line            session.created: kind transcript, cwd, project (the last folder
//	                          of it), agent and version of the format in settings; parent, the
//	                          session of which it is a copy
//	an entry whose parent is  session.rewound to where the parent stands, or to after the
//	not the one before        header if it has none or one that is not in the file
//	model_change, an answer   session.updated of models, if one is new
//	session_info              session.updated of title
//	a message of the person   run.created of kind turn
//	an answer that stops      run.finished: completed (stop, length), failed (error),
//	                          interrupted (aborted). After an error pi may try again: then the
//	                          next outcome is a newer version of it
//	an answer with usage      cost.accrued, in tokens and, if pi has prices, in dollars; the
//	                          response is its responseId, else a hash of the message. It
//	                          stands before the answer: who goes back to that keeps both
//
// A price of 0 is said for models of which pi knows no price: it is no price. Nothing is made
// of a compaction: its line is there, and what the person saw stays.
//
// A fork is a copy: the file has its parent's entries, with their ids, under a header that
// names the parent's file. They are turns here too, begin no runs, and cost once in all, as
// they have the same responses. The session has the parent, and is no fork by reference.
//
// Files of version 1 have no ids: each entry follows the one before. pi writes such a file
// anew when it opens it. It also writes the whole of a file again behind it, if a session was
// opened that no model had answered: the copies count then, as they do for pi.
//
// # What was seen
//
// Version 0.73.1, run with a stand-in for the model: prompts, answers, errors; its text and
// documents for the tree and for copies; sessions that its own session manager wrote: trees,
// summaries, labels, forks, names. A session of version 1 with 1,018 entries. Not seen in
// files: messages of extensions, bash commands by the person.
package pi

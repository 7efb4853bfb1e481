// Package codex reads the files of Codex CLI's threads: rollouts, files of JSON lines {timestamp, ordinal, type,
// payload}.
//
// # Input
//
// Below Codex' home (CODEX_HOME, else ~/.codex), in sessions and archived_sessions, files with the names
//
//	rollout-<local time>-<thread>.jsonl             the first file of a thread
//	rollout-<local time>-<thread>_<id>.jsonl        one that continues it after a revert
//
// also followed by .zst. A thread is the session codex/<thread>, with all its files. The stem of a file is its own
// id: that of the revert, or of the thread. It stays when the file is archived or compressed, and other rollouts
// refer to the file by it. Ids are UUIDs of version 7, so stems sort by the beginnings of the files, and files of one
// session have to be read in that order. A file in archived_sessions is archived, until it is back in sessions. The
// SQLite files beside them are indexes and are not read. session_index.jsonl beside the folders has the names that
// users gave to threads. A thread takes its title from there (name.go).
//
// # What each line becomes
//
// The thread main has everything that the screen shows, once: items of the model's conversation (response_item), in
// both modes of Codex. Events for the screen (event_msg: user_message, agent_message, item_completed) repeat them;
// they go to log with all the rest. Messages in which Codex sends context and instructions to the model also go to
// log: those of the role developer, and those of the user with such a mark or beginning. In newer rollouts, so does a
// message of the model that was not reported to the screen before (item_completed of an AgentMessage): the summary
// for a compaction. A plan (item_completed of a Plan) is in main, because no item repeats it. So is compacted: a
// compaction removes nothing, and the line marks its position.
//
//	first line                       session.created: kind transcript, cwd, project (the name of
//	                                 the git repository, else the last folder of cwd), agent
//	                                 and version in settings; parent, the thread that
//	                                 spawned this one or of which it is a copy
//	history_base in it               fork, in the first file of a thread: where the line of
//	                                 the file thread_id ends at end_byte_offset.
//	                                 session.rewound to there, in a later file; to before
//	                                 everything without one
//	thread_rolled_back               session.rewound to before the user's turn with the
//	                                 oldest of the last num_turns user messages
//	task_started                     run.created of kind turn; an open one was
//	                                 interrupted
//	task_complete, turn_aborted      run.finished: completed, failed if it has an error,
//	                                 interrupted
//	token_usage_record               cost.accrued with response_id, of the model of the
//	                                 newest turn_context or thread_settings_applied
//	token_count                      cost.accrued, in files without such records, whenever
//	                                 the total grew
//	turn_context                     session.updated of models, if one is new
//
// The cost of a compaction counts as the run's, because the line about the compaction comes later.
//
// A thread_id in history_base is the id of a file, not always of a thread: after a revert it is the revert's id. It
// may also be a file of an ancestor, when a fork goes back beyond its own beginning. So a position has the stem, and
// the session only if it is certain.
//
// # Copies
//
// Older forks copy their parent's lines after its session_meta, with new times. They are kept, are in main, and cost
// nothing: their turns have ids older than the thread. The session has the parent, and is not a fork by reference.
// The context that a sub-agent received from its parent is copied too, up to subagent_history_start_ordinal: it goes
// to log, because Codex does not show it.
//
// # Torn lines
//
// If Codex could not write a line completely, it writes the line again, on the same line of the file. The complete
// one counts, and two that differ both count; the line is kept as it is.
//
// # Verified versions
//
// Version 0.118.0 (no numbers, no history_base: "legacy") and 0.169.0 ("paginated") were run with a stand-in for the
// model: turns, a resume, forks, forks of forks, reverts one after another and into inherited history, reverts to
// before the first turn, a rollback, compactions, an interruption, a sub-agent with its parent's context, archives.
// The result of these rollouts was compared with Codex' answers to thread/read, thread_token_usage and
// total_token_usage. A [Rollout] of each of nine threads was resumed by 0.169.0, in a home without other files and
// without a row in SQLite; its totals continued from there. So was a [Reference], in a home with the file that it
// refers to.
//
// Not seen, and read as Codex' source suggests: compressed files; versions between the two, with records of usage or
// without; sub-agents of older versions, whose copies are recognised only by the ids of their turns; threads whose
// ids have no time (the usage of their copies is unknown); files of 2025 whose lines have no payload, which go to
// log; segments of rollouts that refer to each other by path; plans; migrate-rollouts, which rewrites files.
package codex

// Package codex says what the files mean in which Codex CLI keeps its threads: rollouts,
// files of JSON lines {timestamp, ordinal, type, payload}.
//
// # What is read
//
// Below Codex' home (CODEX_HOME, else ~/.codex), in sessions and archived_sessions, what is
// called
//
//	rollout-<local time>-<thread>.jsonl             the first file of a thread
//	rollout-<local time>-<thread>_<id>.jsonl        one that continues it after a revert
//
// also with .zst behind it. A thread is the session codex/<thread>, whatever files it has.
// The stem of a file is its own id: that of the revert, or of the thread. It is the same in
// the archive and compressed, and it is what other rollouts call the file. Ids are UUIDs of
// version 7, so stems sort as the files were begun, and files of one session are to be read
// in that order. A file in archived_sessions is archived, and back once it is in sessions.
// The files in SQLite beside them are indexes, and are not read. session_index.jsonl beside the
// folders has the names that people gave to threads. A thread takes its title from there
// (name.go).
//
// # What each line becomes
//
// Thread main has what the screen shows, each of it once: items of the model's conversation
// (response_item), in both modes of Codex. The same is told again to the screen (event_msg:
// user_message, agent_message, item_completed), which stands in the thread log with all the
// rest, and so do messages in which Codex tells the model where it is and what to heed:
// those of the role developer, and those of the user that are marked, or begin, as such. So
// does, in newer rollouts, what the model says without the screen being told of it before
// (item_completed of an AgentMessage): the summary for a compaction. A plan (item_completed of a Plan) is in main, because it stands nowhere else, and so is
// compacted: nothing is lost by it, and the line says where it was.
//
//	first line                       session.created: kind transcript, cwd, project (the name of
//	                                 the git repository, else the last folder of cwd), agent
//	                                 and version in settings; parent, the thread that
//	                                 spawned this one or of which it is a copy
//	history_base in it               fork, in the first file of a thread: where the line of
//	                                 the file thread_id ends at end_byte_offset.
//	                                 session.rewound to there, in a later file; to before
//	                                 everything if there is none
//	thread_rolled_back               session.rewound to before the turn of the person in
//	                                 which the oldest of num_turns of their messages stands
//	task_started                     run.created of kind turn; one that was open was
//	                                 interrupted
//	task_complete, turn_aborted      run.finished: completed, failed if it has an error,
//	                                 interrupted
//	token_usage_record               cost.accrued with response_id, of the model of the
//	                                 newest turn_context or thread_settings_applied
//	token_count                      cost.accrued, in files without such records, whenever
//	                                 the sum of all grew
//	turn_context                     session.updated of models, if one is new
//
// What the model is paid for a compaction counts as the run's, because the line that tells
// so comes later.
//
// A thread_id in history_base is the id of a file, not always of a thread: after a revert it
// is that of the revert. It may also be a file of an ancestor, when a fork goes back beyond
// where it began. So a place says the stem, and the session only where it is sure.
//
// # Copies
//
// Older forks copy their parent's lines behind its session_meta, with new times. They are
// kept, stand in main, and cost nothing: their turns have ids older than the thread. The
// session has the parent, and is no fork by reference. What a sub-agent was told of its
// parent is copied too, up to subagent_history_start_ordinal: that stands in log, as Codex
// does not show it.
//
// # Torn lines
//
// Codex writes a line again if it could not be written whole, on the same line of the file.
// The whole one counts, and two that differ count both; the line is kept as it is.
//
// # What was seen
//
// Version 0.118.0 (no numbers, no history_base: "legacy") and 0.169.0 ("paginated"), run
// with a stand-in for the model: turns, a resume, forks, forks of forks, reverts one after
// another and into what a fork inherits, reverts to before the first turn, a rollback,
// compactions, an interruption, a sub-agent with its parent's context, archives. What these
// rollouts say was compared with what Codex answered to thread/read, thread_token_usage and
// total_token_usage. A [Rollout] of each of nine threads was resumed by 0.169.0, in a home that
// had nothing else, no row in SQLite either; its totals went on from there. So was a [Reference],
// in a home with the file that it refers to.
//
// Not seen, and read as Codex' sources suggest: compressed files; versions between the two,
// with records of usage or without; sub-agents of older versions, whose copies are known by
// the ids of their turns only; threads whose ids say no time: what a copy took is unknown
// then; files of 2025 whose lines have no payload, which stand in log; segments of rollouts
// that refer to each other by path; plans; migrate-rollouts, which writes files anew.
package codex

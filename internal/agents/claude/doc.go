// Package claude reads the transcripts of Claude Code, which the Agent SDK writes too.
//
// # Files
//
// Below a folder of projects ($CLAUDE_CONFIG_DIR/projects, else ~/.claude/projects and ~/.config/claude/projects),
// three kinds of files are read:
//
//	<project>/<session>.jsonl                            a session
//	<project>/<session>/subagents/.../agent-<id>.jsonl   its sub-agent, in the thread agent/<id>
//	<project>/agent-<id>.jsonl                           the same in versions 2.0.x: its lines name the session
//
// A session is claude/<project>/<session>. The project's folder is named after the path in which Claude Code was
// started, in a spelling that cannot be reversed: the working folder is in the session's lines.
//
// Other files are neither read nor kept: outputs of tools that are too large for a line (<session>/tool-results/...),
// of which the line has the beginning and the path; a small object about each sub-agent (agent-<id>.meta.json), with
// its type and the call that started it; snapshots of files (~/.claude/file-history). So only the transcripts can be
// restored byte for byte. When Claude Code deletes its files after 30 days, the others are lost.
//
// # Lines
//
// Each line is one turn. A line of the session's own file is in the thread main if it is a message: user, assistant,
// or an attachment with a prompt that the user wrote while the model worked. All other lines are in the thread log:
// system, progress, other attachments, summaries, titles, snapshots, queues, modes, and lines that are blank, torn or
// of an unknown type. A sub-agent's messages in the session's file are in its own thread, agent/<id>; if the
// sub-agent has no id (1.0.x), <id> is the uuid of its first line. All lines of a sub-agent's file are in its thread.
//
// A line's id is its uuid, if the line has only one value and no line before it in the file has the uuid. A message
// has the service's id, so that the lines of one response share it; others have their uuid.
//
// Real files have lines with two objects. Such a line stays one turn, which is not valid JSON, and each object is
// read.
//
// # What follows
//
// Besides the lines these events are made:
//
//   - session.created at the first line of any type: kind transcript and, if the line has them, the working
//     directory, the project (its last folder), the version, and the session that this one is a fork of. The
//     file of a fork has copies of its parent's lines. Therefore it is forked from before the first line, and
//     nothing is duplicated.
//   - session.updated if a later line has these properties, and for models, title, tag and name of the agent.
//     A title of the user ranks before one of the model, and that before a summary. The summary counts whose
//     entry is the last one in the file. A summary of an entry that is not in the file is of another session.
//   - run.created and run.finished, of the kind turn, for a prompt and the work on it. The id is the prompt's
//     uuid. The turn is completed at the line with its duration (turn_duration), at the next prompt if the model
//     wrote its answer, or if no more lines come. It is interrupted or stopped:hook if the transcript has that;
//     failed if an error of the service is the last message; stopped:unfinished if the next prompt comes in the
//     middle, as after a crash. A command is a turn if the model answers.
//   - cost.accrued for each response, once it is complete: when the next one begins, the turn ends or no more
//     lines come. Each line of a response has its usage so far; the one with the largest output counts. It has
//     tokens; only files of the first versions have dollars (costUSD).
//   - session.rewound before a prompt that goes back. Claude Code does not record a rewind; the new prompt has
//     the parent of the old one. So a prompt is a rewind if its parent already has a prompt as child that was
//     answered. For the first prompt of a session, the parent is the beginning. Several children alone do not
//     mean a rewind: parallel calls of tools, progress and hooks make thousands of them.
//
// A compaction has no event: its line is stored, and the messages that the user saw stay.
//
// # Verified versions
//
// Lines of the versions 1.0.108, 2.0.28, 2.0.76, 2.1.7 and 2.1.12 were read from files. Types up to 2.1.42 follow
// their description. The program itself was not run. Not seen in files: rewinds and forks by the program, commands
// typed after a rewind, sub-agents in subagents/, and the types ai-title, custom-title, tag and agent-name. They are
// read as the SDK and others describe them. A prompt that was withdrawn before its answer stays, because it looks
// like one that was lost at a start.
package claude

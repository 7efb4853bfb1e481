// Package claude reads the transcripts of Claude Code, which the Agent SDK writes too.
//
// # Files
//
// Below a folder of projects ($CLAUDE_CONFIG_DIR/projects, else ~/.claude/projects and
// ~/.config/claude/projects), three kinds of files are read:
//
//	<project>/<session>.jsonl                            a session
//	<project>/<session>/subagents/.../agent-<id>.jsonl   a sub-agent of it, in the thread agent/<id>
//	<project>/agent-<id>.jsonl                           the same in versions 2.0.x: its lines name the session
//
// A session is claude/<project>/<session>. The project's folder is named after the path in
// which Claude Code was started, in a spelling that cannot be undone: where a session was
// at work, its lines say.
//
// What lies beside these is not read and not kept: outputs of tools that were too large
// for a line (<session>/tool-results/...), of which the line has the beginning and the
// path; a small object about each sub-agent (agent-<id>.meta.json), as its type and the
// call that started it; snapshots of files (~/.claude/file-history). So what is given back
// byte for byte are the transcripts, and when Claude Code deletes its files after 30 days
// the others are gone.
//
// # Lines
//
// Each line is one turn. What stands in the session's own file is in the thread main if
// somebody says something in it: user, assistant, and of the attachments a prompt that was
// written while the model worked. All else is in the thread log: system, progress, other
// attachments, summaries, titles, snapshots, queues, modes, what is blank, torn or of a type
// that nobody knows. What a sub-agent says in the session's file stands in its own thread,
// agent/<id>, where <id> is the uuid of its first line if it has no id (1.0.x). All lines
// of a sub-agent's file stand in its thread.
//
// A line's id is its uuid, if it is the line's only value and no line before it in the file
// has it. Messages have the id that the service gave them, so that the lines of one response
// have one; others their uuid.
//
// Two objects in one line, as real files have them, stay one turn, which is no JSON. What
// they say is read of each.
//
// # What follows
//
// Beside the lines these events are made:
//
//   - session.created at the first line, whatever it is: kind transcript, and as far as the
//     line says it the working directory, the project (its last folder), the version, and the
//     session that it is a fork of. Such a file has copies of its parent's lines. Therefore it
//     is forked from before the first line: nothing is there twice.
//   - session.updated where that is said later, and for models, title, tag and name of the
//     agent. A title that the person gave counts before one that a model gave, and that before a
//     summary. Of summaries that one counts whose entry stands last in the file; one of an entry
//     that is not in it says nothing of this session.
//   - run.created and run.finished, of the kind turn, for a prompt and what came of it. The id is
//     the prompt's uuid. It is completed at the line that measures it (turn_duration), at the next
//     prompt if the model has said its word, or when nothing more comes; interrupted or
//     stopped:hook where the transcript says so; failed if the service's error is the last word;
//     stopped:unfinished if the next prompt comes in the middle, as after a crash. A command is a
//     turn if the model answers.
//   - cost.accrued for each response, once it is whole: when the next one begins, the turn ends
//     or nothing more comes. Each of its lines says what it took so far; the one with the largest
//     output counts. Tokens only: dollars stand in files of the first versions alone (costUSD).
//   - session.rewound before a prompt that goes back. Claude Code does not say that somebody did;
//     it lets the new prompt follow what the old one followed. So a rewind is seen where a prompt
//     follows an entry that another prompt follows already, and that one was answered. For the
//     first prompt of a session it is what stood before it. Entries that only have several children
//     mean nothing: calls of tools side by side, progress and hooks make thousands of them.
//
// Nothing is made of a compaction: its line is there, and what the user saw stays.
//
// # What was seen
//
// Lines of the versions 1.0.108, 2.0.28, 2.0.76, 2.1.7 and 2.1.12 in files, and the types that
// occur up to 2.1.42 by their description. The program itself was not run. Rewinds and forks by
// the program, commands that are typed after going back, sub-agents in subagents/ and the lines of
// types ai-title, custom-title, tag and agent-name were not seen in files: they are read as the SDK
// and others describe them. A prompt that was taken back before it was answered stays, as nothing
// tells it from one that was lost at a start.
package claude

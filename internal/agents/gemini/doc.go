// Package gemini reads the session files of Gemini CLI.
//
// # Input
//
// Below the folder of projects (.gemini/tmp in GEMINI_CLI_HOME, else in the home folder):
//
//	<project>/chats/session-<minute>-<id8>.jsonl   a session
//	<project>/chats/<session>/<id>.jsonl           its sub-agent, in the thread agent/<id>
//	<project>/chats/session-<minute>-<id8>.json    a session of an older version
//
// A session is gemini/<id>, with the id in the first line. Another file with the same id, which Gemini CLI creates if
// it cannot read the first one, belongs to the same session: its messages follow those of the first. The project is
// named after the last part of the working folder, which the program sends to the model. Until then it is named after
// the project's folder, unless that name is a hash. Other files, such as logs.json, checkpoints, .project_root and
// outputs of tools, are not read.
//
// # What each line becomes
//
// The thread main, or agent/<id>, is the list of messages that Gemini CLI itself reads from the file. All other lines
// go to log.
//
//	the first line                session.created: kind transcript, agent in settings
//	a message {id, type ...}      a turn. If the list has its id, it is a newer version:
//	                              thread.replaced removes the older one; if others follow
//	                              that, it puts the newer one in its position
//	{$set: {messages}}            thread.replaced: known messages are kept, and others
//	                              are turns of this event. No event if nothing changes
//	{$rewindTo: id}               session.rewound to before the message, or to after the first
//	                              line if the list does not have the id
//	{$set: {summary}}             session.updated of title; of directories: cwd
//	metadata again                the session is resumed; see below
//	a prompt                      run.created of kind turn, and run.finished of the one before
//	a message with tokens         cost.accrued with the message's id as response
//
// Two messages are equal if they have the same content: other times, a text that became a part, or calls in the
// content instead of beside it make no difference. The first version stays, because it has more details.
//
// A resumed session writes its metadata again, sets its list to the messages that the program sends to the model, and
// then to the whole list, in another spelling. The fold holds such lists until the next message. So a resume removes
// nothing and adds nothing twice.
//
// If the list was changed before its end since the target message of a rewind, no position in the file has the
// resulting list: then the event is thread.replaced. So it is in the threads of sub-agents, because session.rewound
// affects the whole session.
//
// A turn ends with the next prompt, or if no more lines come. It is completed if the model wrote a text and called no
// tool since, else stopped:unfinished. If an error came last, it is failed, or interrupted if the error is a
// cancelled request.
//
// Of the tokens, input includes cached ones, and output excludes thoughts; tokens of Gemini's own tools are in
// neither. The total is the sum of input, output, thoughts and tool.
//
// # Older files
//
// A .json file is one value over many lines, and Gemini CLI rewrites it each time. Its lines go to log. After the
// last line, the thread main is replaced by the messages, each with its bytes in the file. The first line has no id:
// the session is gemini/<id8>. If a newer version resumes it, that writes a .jsonl file with the whole id: another
// session, with messages of the same ids, which cost once.
//
// # Verified versions
//
// Version 0.61.0 was run with a stand-in for the model: a prompt, a tool, an answer, a resume. The rules for the
// list, for names and for tokens are from its source. A .json file of 0.23 was read. Not seen in files: $rewindTo,
// sub-agents, a compression's $set, summaries, errors, cancelled requests, a file that continues a .json file, files
// rewritten by rename.
package gemini

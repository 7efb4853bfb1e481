// Package gemini says what the files mean in which Gemini CLI keeps its sessions.
//
// # What is read
//
// Below the folder of projects (.gemini/tmp in GEMINI_CLI_HOME, else in the home folder):
//
//	<project>/chats/session-<minute>-<id8>.jsonl   a session
//	<project>/chats/<session>/<id>.jsonl           a sub-agent of it, in the thread agent/<id>
//	<project>/chats/session-<minute>-<id8>.json    a session as older versions wrote it
//
// A session is gemini/<id>, with the id that the first line says. Another file with the same
// id, as one that could not be read leaves behind, is another file of the same session: its
// messages follow those of the first. The project is called after the last folder of
// where the session works, which the program tells the model; until it has, after the project's
// folder, unless that is called after a hash. What lies beside, as logs.json, checkpoints, .project_root and outputs of tools, is
// not read.
//
// # What each line becomes
//
// The thread main, or agent/<id>, is the list of messages as Gemini CLI itself reads it of
// the file. Everything else stands in log.
//
//	the first line                session.created: kind transcript, agent in settings
//	a message {id, type ...}      a turn. With an id that the list has it is a newer version:
//	                              thread.replaced takes the older one out, and if others stand
//	                              behind that, puts the newer one in its place
//	{$set: {messages}}            thread.replaced: what the list has already is kept, and what
//	                              it has not is a turn of this event. Nothing if all is the same
//	{$rewindTo: id}               session.rewound to before the message, or to after the first
//	                              line if the list has none of that id
//	{$set: {summary}}             session.updated of title; of directories: cwd
//	metadata again                the session is taken up again; see below
//	a prompt                      run.created of kind turn, and run.finished of the one before
//	a message with tokens         cost.accrued with the message's id as response
//
// The same message is one that says the same: other times, a text that became a part, calls
// that stand in the content instead of beside it make no other turn. So what was there first
// stays, which says more.
//
// A session that is taken up again says its metadata again, sets its list to what the program
// tells the model, and then to the whole list, in another spelling. What is set there is held
// until somebody speaks, so that a resume takes nothing away and brings nothing twice.
//
// If the list was changed otherwise than at its end since the message was said that a rewind
// goes back to, no place in the file has the list as it is to be: then it is thread.replaced.
// So it is in the threads of sub-agents, as a rewind is of the whole session.
//
// A turn ends with the next prompt or when nothing more comes: completed if the model said
// something and called no tool since, else stopped:unfinished; failed if an error was said
// last, interrupted if that is that the request was cancelled.
//
// Of the tokens, input includes what was cached, and output excludes what was thought; what
// Gemini's own tools brought stands beside both. The sum of input, output, thoughts and tool
// is the total that is said.
//
// # Older files
//
// A .json file is one value over many lines, written anew each time. Its lines stand in log;
// when the last one is there, the thread main is replaced by the messages, each as it stands
// in the file. Its first line says no id: the session is gemini/<id8>. When a newer version
// takes it up again, it writes a .jsonl file of the whole id: another session, with messages
// of the same ids, which cost once.
//
// # What was seen
//
// Version 0.61.0, run with a stand-in for the model: a prompt, a tool, an answer, a resume;
// its program's text for how the list is read of a file, for names and for tokens; a .json
// file of 0.23. Not seen in files: $rewindTo, sub-agents, a compression's $set, summaries,
// errors, cancelled requests, a file that continues a .json file, files rewritten by rename.
package gemini

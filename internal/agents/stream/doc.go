// Package stream reads the output that programs print line by line, as tally exec records it: agents with JSON
// output, and any other command.
//
// # Input
//
// Files <when>_<thread>.codex.jsonl and the like contain the program's output between two lines of the recorder
// ([Begin], [End]), which have the command, its folder, and how it ended.
//
//	name     the program                                        the session
//	codex    codex exec --json                                  exec/codex/<thread>
//	gemini   gemini --output-format stream-json                 exec/gemini/<session>
//	claude   claude -p --output-format stream-json --verbose    exec/claude/<session>
//	pi       pi --mode json                                     exec/pi/<session>
//	lines    anything else                                      exec/<program>/<file>
//
// An agent that continues a session prints its id again: the session then has several files. If the agent prints no
// id, the session is named after the file. The agent may also keep files of its own, from which tally makes the
// session codex/<thread> or the like. That is a different session with different lines.
//
// # What each line becomes
//
//	the first line       session.created: kind transcript, cwd, agent and command in settings,
//	                     and the command as title if the program does not print the prompt
//	messages             a turn of main: complete messages, calls of tools with their results,
//	                     errors. All other lines go to log: beginnings, repetitions
//	pieces of a text     lines of log; run.progressed with 4 KiB of them at a time. Gemini CLI
//	                     never prints the whole text: its pieces become a turn of main,
//	                     before the line after them
//	begin of a turn      run.created of kind turn
//	end of a turn        run.finished: completed, failed, stopped:<reason>; interrupted if a
//	                     signal ended the program
//	usage                cost.accrued, see below
//
// For any other command, each line goes to log, and the command is a run of kind command. The recorder's first line
// goes to main, its last one to log.
//
// # Costs
//
// Claude Code and pi print the id of the response, so it counts once, even if their files are read too. The total in
// dollars that Claude Code prints at the end covers many responses and goes into the run's usage. Codex prints the
// usage of the thread so far, over all runs that continued it: the largest of these sums counts. Gemini CLI prints
// the sum of a run, by model. If the files that these two keep are read as well, their costs count twice, because no
// id joins them.
//
// # A new program
//
// A new program needs a file with a [kind]: how to recognise its command, which member has the session, the meaning
// of each line. It also needs an entry in kinds, a shape for its lines in the package of the agent, a row in the
// table of internal/agents/message, and a section here and in docs/agents.md.
//
// # Verified versions
//
// codex exec 0.118.0 and 0.169.0, Gemini CLI 0.61.0 and pi 0.73.1 were run with a stand-in for the model: a prompt, a
// tool, an answer. All else follows their documents and source. Claude Code was not run: its lines are read according
// to the types of its SDK.
package stream

// Package stream says what programs print line by line while they work, as tally exec
// records it: agents that are asked for JSON, and any other command.
//
// # What is read
//
// Files <when>_<thread>.codex.jsonl and so on: what the program printed, between two lines of
// the recorder's own ([Begin], [End]), which say what was run where, and how it ended.
//
//	name     the program                                        the session
//	codex    codex exec --json                                  exec/codex/<thread>
//	gemini   gemini --output-format stream-json                 exec/gemini/<session>
//	claude   claude -p --output-format stream-json --verbose    exec/claude/<session>
//	pi       pi --mode json                                     exec/pi/<session>
//	lines    anything else                                      exec/<program>/<file>
//
// An agent that goes on with a session says its id again: then that has several files. One
// that says none has a session of the file's name. The agent may also keep files of its own,
// from which tally makes the session codex/<thread> and so on: that is another session, of
// other lines.
//
// # What each line becomes
//
//	the first line       session.created: kind transcript, cwd, agent and command in settings,
//	                     and as title where the program does not repeat what it was asked
//	what is said         a turn of main: complete messages, calls of tools and what came of
//	                     them, errors. All else stands in log: what begins, what is repeated
//	pieces of a text     lines of log; run.progressed with 4 KiB of them at a time. Gemini CLI
//	                     never says the whole: what its pieces are becomes a turn of main,
//	                     before the line that comes behind them
//	a turn's begin       run.created of kind turn
//	a turn's end         run.finished: completed, failed, stopped:<reason>; interrupted if a
//	                     signal ended the program
//	usage                cost.accrued, see below
//
// Of any other command, each line stands in log, and the command is a run of kind command.
// The recorder's first line stands in main, its last one in log.
//
// # What it costs
//
// Claude Code and pi name the response: it counts once, also where their files are read too.
// What Claude Code reckons in dollars at the end is of many responses, and stands in the
// run's usage. Codex says what the thread took so far, over all runs that went on with it:
// of these sums the largest counts. Gemini CLI says the sum of a run, by model. What these two
// cost counts twice if the files that they keep are read as well, because nothing joins them.
//
// # A new program
//
// One file with a [kind]: how its command is known, where it says its session, what each line
// means; its place in kinds; a shape for its lines, in the package of the agent, and its place in
// the table of internal/agents/message; a section here and in docs/agents.md.
//
// # What was seen
//
// codex exec 0.118.0 and 0.169.0, Gemini CLI 0.61.0 and pi 0.73.1, run with a stand-in for the
// model: a prompt, a tool, an answer. All else is read as their documents and their source have
// it. Claude Code was not run: its lines are read as the types of its SDK describe them.
package stream

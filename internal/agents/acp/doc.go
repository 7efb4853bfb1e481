// Package acp says what is said between an editor and an agent that speak the Agent Client
// Protocol: lines of JSON-RPC in both directions, as a recorder between them sees them.
//
// # What is read
//
// Files *.acp.jsonl of lines that [Record] made:
//
//	{"toAgent":true,"message":{...}}     the editor said so, {...} as it came
//	{"toAgent":false,"message":{...}}    the agent did
//	{"toAgent":false,"text":"..."}       it said something that is no JSON; bytes, in base64,
//	                                     if it is no UTF-8
//
// Lines with "> " or "< " before a message, as other recorders write them, are read too. One
// connection may have several sessions. A line that says its session, or answers one that
// does, is a line of acp/<agent>/<session>, with the name by which the agent introduced
// itself; all other lines are of the connection's own session, acp/<name of the file>.
//
// # What each line becomes
//
//	the first line of a session   session.created: kind transcript, cwd, agent and version in
//	                              settings
//	session/prompt                a turn of main: what the person said; run.created
//	session/update of a text      run.progressed with the text as delta, of the turn to come
//	the answer to session/prompt  turn.appended: all that the agent said since, in main;
//	                              run.finished: completed (end_turn, max_tokens), interrupted
//	                              (cancelled), stopped:<reason>, failed (an error)
//	usage_update with a cost      cost.accrued of what it grew, in dollars
//	the answer's usage            cost.accrued in tokens
//	session_info_update           session.updated of title
//
// Every line but a prompt stands in log. The agent's turn is {sessionId, updates, stopReason}:
// its updates as the protocol has them, of which pieces of one text are one, and a call of a
// tool has what was said of it later. It has the id that its deltas name. If the connection
// ends before the answer comes, the deltas stay as what was not finished.
//
// What an agent tells of a session that it loads was said before: it stands in log alone.
//
// An agent may also keep files that tally reads. Then it is recorded in two sessions, and
// nothing joins what both say that it cost.
//
// # What was seen
//
// Gemini CLI 0.61.0 with one session, a prompt and a tool, run with a stand-in for the model;
// all else is read as the protocol's documents have it: usage (for the turn), cost (of the
// session so far), several sessions, loading, cancelling, errors.
package acp

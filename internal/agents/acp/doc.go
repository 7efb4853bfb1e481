// Package acp reads recorded connections between an editor and an agent that speak the Agent Client Protocol: lines
// of JSON-RPC in both directions.
//
// # Input
//
// Files *.acp.jsonl of lines that [Record] made:
//
//	{"toAgent":true,"message":{...}}     from the editor, {...} as it came
//	{"toAgent":false,"message":{...}}    from the agent
//	{"toAgent":false,"text":"..."}       a line that is not JSON; bytes, in base64,
//	                                     if it is not UTF-8
//
// Lines with "> " or "< " before a message, the form of other recorders, are read too. One connection may have
// several sessions. A line with a session's id, and the answer to such a line, belong to acp/<agent>/<session>, with
// the agent's name from its introduction. All other lines belong to the connection's own session, acp/<name of the
// file>.
//
// # What each line becomes
//
//	the first line of a session   session.created: kind transcript, cwd, agent and version in
//	                              settings
//	session/prompt                a turn of main: the user's message; run.created
//	session/update of a text      run.progressed with the text as delta, of the turn to come
//	the answer to session/prompt  turn.appended: all updates since, in main;
//	                              run.finished: completed (end_turn, max_tokens), interrupted
//	                              (cancelled), stopped:<reason>, failed (an error)
//	usage_update with a cost      cost.accrued of the increase, in dollars
//	the answer's usage            cost.accrued in tokens
//	session_info_update           session.updated of title
//
// Every line except a prompt goes to log. The agent's turn is {sessionId, updates, stopReason}: the updates in the
// protocol's form. Pieces of one text are joined, and later updates of a tool call are merged into it. The turn has
// the id that its deltas name. If the connection ends before the answer, the deltas stay as an unfinished text.
//
// If an agent loads a session, it repeats old messages: they go only to log.
//
// An agent may also keep files that tally reads. Then it is recorded in two sessions, and no id joins their costs.
//
// # Verified versions
//
// Gemini CLI 0.61.0 was run with a stand-in for the model: one session, a prompt and a tool. All else follows the
// protocol's documents: usage (of the turn), cost (of the session so far), several sessions, loading, cancelling,
// errors.
package acp

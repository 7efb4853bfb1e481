// Package taverndir is the folder of a team of agents, as three generations of it have it.
//
// The live layout is .tavern:
//
//	.tavern/
//	  docs/<id>                  documents of kind doc
//	  workflows/<id>.json        documents of kind workflow
//	  overlays/<agent>/<path>    documents of kind overlay
//	  agents/<name>/agent.md     the node file of an agent, and the agent
//	  agents/<name>/sessions.jsonl
//	  inbox/<receiver>/<number>-<id>.md or .json, inbox.json
//	  queues/<id>/items/<number>-<id>.json, queue.json
//
// An older .tavern has servitors/<name>/servitor.md and sessions.jsonl in place of agents/.
// The oldest is a folder of documents, <id>.md each, some of which are agents' nodes.
//
// A file is the bytes of its document. An agent is its document and the session agent/<id>,
// which has its state, and the entries of sessions.jsonl as its log. Messages and items are
// turns of their inboxes and queues: a message that is a text is one behind front matter.
// The file of an item says also what became of it. A flow has no file. What is none of these
// is kept whole as a document of kind file, so that all that was imported comes out again
// byte for byte. Hidden files, and what editors leave beside a file, are not looked at.
//
// A namespace has one such folder: what several folders bring goes into one, and a file of
// which the store has another one is reported and left alone.
package taverndir

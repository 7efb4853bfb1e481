// Package taverndir reads and writes the folder of a team of agents, in three generations of its layout.
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
// An older .tavern has servitors/<name>/servitor.md and sessions.jsonl instead of agents/. The oldest is a folder of
// documents, <id>.md each, some of which are agents' node files.
//
// A file is the bytes of its document. An agent is its document and the session agent/<id>, with its state, and with
// the entries of sessions.jsonl as its log. Messages and items are turns of their inboxes and queues. A message that is
// a text has that text behind front matter. The file of an item also has its history. Flows have no files. Any other
// file is kept whole as a document of kind file, so that an export writes all imported files byte for byte. Hidden
// files and files that editors leave are ignored.
//
// A namespace has one such folder: several imported folders become one. If the store has another version of a file, the
// import reports it and leaves it alone.
package taverndir

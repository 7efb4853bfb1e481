// Package tallydir reads and writes the folder of tally-evals:
//
//	conversations/<id>/
//	  meta.json              {"id","createdAt"}
//	  conversation.jsonl     one object per step
//	  trajectory.meta.json   what the simulation was asked to do
//	  stepTraces.json        the steps as the simulation saw them
//	  runs/tally/*.json      evaluations
//	  runs/trajectory/*.json simulations
//
// A conversation becomes a session: its steps the turns of thread main, its runs
// runs with their results, each value byte for byte as it stood in its file. Step
// traces are not stored where they follow from the steps. How a file is spelled
// around its values stands in the session's formats; a file that does not come out
// of the state byte for byte, and every file that the layout does not know, is
// kept whole as a document of kind file besides.
//
// Importing is idempotent for ever: the folder is compared with what an export
// would write now, and only the difference becomes events. A conversation whose
// folder is missing stays in the store: an import of a part takes nothing away.
package tallydir

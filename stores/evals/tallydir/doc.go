// Package tallydir reads and writes the folder of tally-evals:
//
//	conversations/<id>/
//	  meta.json              {"id","createdAt"}
//	  conversation.jsonl     one object per step
//	  trajectory.meta.json   the definition of the simulation
//	  stepTraces.json        the steps as the simulation recorded them
//	  runs/tally/*.json      evaluations
//	  runs/trajectory/*.json simulations
//
// A conversation becomes a session: its steps are the turns of thread main, its runs are runs with their results,
// each value byte for byte as in its file. Step traces that can be computed from the steps are not stored. The
// session's formats record how a file is spelled around its values. A file that the state does not render byte for
// byte, and every file that the layout does not know, is also kept whole, as a document of kind file.
//
// An import can be repeated at any time: it compares the folder with the files that an export would write now, and
// appends events only for the differences. A conversation whose folder is missing stays in the store: an import of a
// part removes nothing.
package tallydir

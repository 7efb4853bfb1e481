// Package erratadir reads and writes the data folder of errata, which runs several
// models side by side on one prompt:
//
//	prompt_history.jsonl       one JSON string a line, oldest first
//	recipes.json               {hash: recipe}; configs.json in the beginning
//	recipes/*.md               recipes of the user
//	checkpoint.json            of a run without a session
//	history.json               the oldest form: {model: [{"Role","Content"}]}
//	sessions/ses_<uuid>/
//	  session_metadata.json    summaries of the runs
//	  session_content.json     prompts, answers, histories
//	  checkpoint.json          only while a run is unfinished
//	  recipe.md                the recipe in force
//
// A session becomes a session of kind panel: the history of a model is the thread
// of its name, with turns {"role","content"}; a run is a run of kind panel whose
// result holds the summary and the content byte for byte,
// {"summary":...,"content":...}; selection, rating, note and applied files are an
// annotation, costs and tokens of each model a cost. The marker of a rewind is a
// session.rewound that moves nothing, because the histories say already what it
// left. An unfinished run is a checkpoint of kind resume. The prompts are the
// thread prompts of the session prompts, recipes documents of kind recipe by their
// hash.
//
// A file that does not come out of the state byte for byte, and every file that
// the layout does not know, is kept whole as a document of kind file besides; a
// file that cannot be read is reported and kept as it is, and what the store has
// stays. Importing is idempotent for ever: the folder is compared with what an
// export would write now, and only the difference becomes events. A session whose
// folder is missing stays in the store.
package erratadir

// Package erratadir reads and writes the data folder of errata, which runs several models on the same prompt:
//
//	prompt_history.jsonl       one JSON string a line, oldest first
//	recipes.json               {hash: recipe}; formerly configs.json
//	recipes/*.md               recipes of the user
//	checkpoint.json            of a run without a session
//	history.json               the oldest form: {model: [{"Role","Content"}]}
//	sessions/ses_<uuid>/
//	  session_metadata.json    summaries of the runs
//	  session_content.json     prompts, answers, histories
//	  checkpoint.json          only while a run is unfinished
//	  recipe.md                the current recipe
//
// A session becomes a session of kind panel. The history of a model is the thread with its name, with turns
// {"role","content"}. A run is a run of kind panel. Its result has the summary and the content byte for byte,
// {"summary":...,"content":...}. Selection, rating, note and applied files are an annotation; costs and tokens of
// each model are a cost. The marker of a rewind is a session.rewound that moves nothing, because the histories in the
// files are already rewound. An unfinished run is a checkpoint of kind resume. The prompts are the thread prompts of
// the session prompts. Recipes are documents of kind recipe by their hash.
//
// A file that the state does not render byte for byte, and every file that the layout does not know, is also kept
// whole, as a document of kind file. A file that cannot be parsed is reported and kept as it is, and the store keeps
// its data. An import can be repeated at any time: it compares the folder with the files that an export would write
// now, and appends events only for the differences. A session whose folder is missing stays in the store.
package erratadir

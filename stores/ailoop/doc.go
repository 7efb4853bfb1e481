// Package ailoop keeps the histories of ailoop's agent loop: the messages of a
// conversation and which of them are pinned.
//
// Whatever implements [HistoryStore] keeps one conversation: [History] in the log,
// [File] in a file as the original's JsonFileHistoryStore does, [InMemory] as long as
// the program runs.
//
//	h := ailoop.Of(st, "support-42")
//	chat, found, err := h.Load(ctx)
//	err = h.Save(ctx, chat.Append(ailoop.UserMessage("My order is late.")))
//
// A history is the session history/<id> of the store, so that nothing that was ever
// saved is lost: it can be read as it was, rewound and forked. The package ailoopdir
// reads and writes the original's files.
package ailoop

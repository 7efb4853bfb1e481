// Package ailoop keeps the histories of ailoop's agent loop: the messages of a conversation and their pins.
//
// A [HistoryStore] keeps one conversation: [History] in the log, [File] in a file of the original's
// JsonFileHistoryStore format, [InMemory] until the program ends.
//
//	h := ailoop.Of(st, "support-42")
//	chat, found, err := h.Load(ctx)
//	err = h.Save(ctx, chat.Append(ailoop.UserMessage("My order is late.")))
//
// A history is the session history/<id> of the store, so no saved snapshot is ever lost: a history can be read in any
// earlier state, rewound and forked. The package ailoopdir reads and writes the original's files.
package ailoop

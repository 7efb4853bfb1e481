// Package ailoop keeps the histories of ailoop's agent loop: the messages of a
// conversation and which of them are pinned.
//
// A program that used ailoop's store gets a [History] in the place of its
// JsonFileHistoryStore:
//
//	h := ailoop.Of(st, "support-42")
//	chat, found, err := h.Load(ctx)
//	err = h.Save(ctx, chat.Append(ailoop.UserMessage("My order is late.")))
//
// A history is the session history/<id> of the store, so that nothing that was ever
// saved is lost: it can be read as it was, rewound and forked. The
// package ailoopdir reads and writes the original's files.
package ailoop

// Package chat knows the snapshot of a conversation: messages with a mask of
// pins beside them. It reads and writes its JSON, says whether a message has the
// shape that it must have, and finds the smallest change of a thread that turns
// one snapshot into another.
//
// Messages are raw JSON here, and stay as they were given.
package chat

// Package chat handles the snapshot of a conversation: its messages and their pins. It reads and writes its JSON,
// checks the shape of a message, and computes the smallest change of a thread that turns one snapshot into another.
//
// Messages are raw JSON here, and keep their bytes.
package chat

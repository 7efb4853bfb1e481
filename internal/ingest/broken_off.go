//go:build !broken_ack && !broken_ids && !broken_facts && !broken_order

package ingest

// What the laws of the tests must find out, by build tags.
const (
	brokenAck   = false // batches are acknowledged before they are appended
	brokenIDs   = false // a line's id is made of its bytes
	brokenFacts = false // what follows from a line is derived again
	brokenOrder = false // files of a session are read as they come
)

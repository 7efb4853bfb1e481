//go:build broken_ack

package ingest

const (
	brokenAck   = true
	brokenIDs   = false
	brokenFacts = false
	brokenOrder = false
)

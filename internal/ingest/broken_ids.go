//go:build broken_ids

package ingest

const (
	brokenAck   = false
	brokenIDs   = true
	brokenFacts = false
	brokenOrder = false
)

//go:build broken_facts

package ingest

const (
	brokenAck   = false
	brokenIDs   = false
	brokenFacts = true
	brokenOrder = false
)

//go:build broken_order

package ingest

const (
	brokenAck   = false
	brokenIDs   = false
	brokenFacts = false
	brokenOrder = true
)

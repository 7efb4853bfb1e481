package projector

import "errors"

// Usage counts the readable documents of a scope, over all namespaces: the whole store, an owner, or a kind. Content
// stored by reference counts for each document that refers to it, but not as a document of its own.
type Usage struct {
	Scope     string `json:"scope"`     // "store", "owner:NAME" or "kind:KIND"; "owner:" counts documents without owner
	Documents int    `json:"documents"` // number of live documents
	Bytes     int64  `json:"bytes"`     // of their newest revisions
	Limit     int64  `json:"limit,omitempty"`
}

// warnsFrom is the percentage of a limit from which a scope counts as nearly full.
const warnsFrom = 80

// Percent returns the used percentage of the limit, rounded down, or 0 without a limit.
func (u Usage) Percent() int {
	if u.Limit <= 0 {
		return 0
	}
	return int(u.Bytes/u.Limit*100 + u.Bytes%u.Limit*100/u.Limit)
}

// Warns reports whether at least 80 % of the limit is used.
func (u Usage) Warns() bool { return u.Limit > 0 && u.Percent() >= warnsFrom }

// ErrNoLimits reports that limits cannot be set here. The owner of the store sets them, on its machine. A server that
// others run has no limits.
var ErrNoLimits = errors.New("only the owner of a store can set limits, on its own machine")

// Live counts the live documents of an owner and kind, over all namespaces.
type Live struct {
	Owner, Kind string
	Documents   int
	Bytes       int64
}

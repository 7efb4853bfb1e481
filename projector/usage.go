package projector

import "errors"

// Usage is what a scope has of documents that can be read now: of the whole store, of an
// owner, or of a kind, over all namespaces. Content that is kept by reference counts for
// each document that refers to it, and not by itself.
type Usage struct {
	Scope     string `json:"scope"`     // "store", "owner:NAME" or "kind:KIND"; "owner:" is what has no owner
	Documents int    `json:"documents"` // that are live
	Bytes     int64  `json:"bytes"`     // of their newest revisions
	Limit     int64  `json:"limit,omitempty"`
}

// warnsFrom is the part of a limit, in hundredths, from which on a scope is near it.
const warnsFrom = 80

// Percent is how much of the limit is used, rounded down; 0 without one.
func (u Usage) Percent() int {
	if u.Limit <= 0 {
		return 0
	}
	return int(u.Bytes/u.Limit*100 + u.Bytes%u.Limit*100/u.Limit)
}

// Warns reports whether 80 % of the limit or more are used.
func (u Usage) Warns() bool { return u.Limit > 0 && u.Percent() >= warnsFrom }

// ErrNoLimits says that limits are not set from here: they are those of whoever owns the
// store, on the machine where it is. A server that others run has none.
var ErrNoLimits = errors.New("limits are set by the owner of a store, where it is")

// Live is what an owner has of a kind, over all namespaces.
type Live struct {
	Owner, Kind string
	Documents   int
	Bytes       int64
}

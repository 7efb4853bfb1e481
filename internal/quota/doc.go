// Package quota limits the bytes of live documents: of a store, and of each owner and kind. A document is live if it
// can be read now. A [Meter] decides before an append is stored whether the append stays within the limits. It reserves
// the bytes that the append may add, so that concurrent writers cannot pass a limit together. When the outcome is
// known, the meter counts the bytes or releases them.
//
// A meter is not stored. It counts the log when a process first asks about limits. Without limits it counts nothing.
package quota

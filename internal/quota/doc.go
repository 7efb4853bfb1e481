// Package quota counts how many bytes of documents can be read now, of a store and of each
// owner and kind, and refuses appends that would pass a limit. A [Meter] is asked before an
// append is stored: what it may add is reserved, so that no number of writers at once pass a
// limit together, and is counted or given back when the outcome is known.
//
// A meter is not kept: it is counted anew from the newest records of the log when limits are
// asked of for the first time in a process. Without limits it counts nothing.
package quota

// Package events is the ground floor of tally: what an event is, how its subject
// is named, what its payload may hold, and how it looks on the wire. It does no
// I/O, reads no clock, and knows nothing of NATS beyond
// the spelling of subjects and headers.
//
// An [Event] is a CloudEvent 1.0: one fact about one [Subject]. A [Record] is an
// event at its place in the log. The data of an event are the producer's bytes
// and are never rewritten; typed payloads such as [TurnAppended] are read from
// them with [Decode] and written with [Encode].
package events

// Package events is the lowest layer of tally: the form of an event, its subject, its payload, and its wire format. It
// does no I/O, reads no clock, and knows nothing of NATS beyond the spelling of subjects and headers.
//
// An [Event] is a CloudEvent 1.0: one fact about one [Subject]. A [Record] is an event with its offset in the log. The
// data of an event are the producer's bytes and are never rewritten. [Decode] reads typed payloads such as
// [TurnAppended] from them, and [Encode] writes them.
package events

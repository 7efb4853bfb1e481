// Package registry knows the types of events that programs register in a log: see events.Type. A type is registered by
// a document of the kind events.KindType in the default namespace. The document's id is the type's name, and its
// content is a JSON object:
//
//	{"moves": "thread", "schema": {...}, "offsets": ["/target"]}
//
// The first valid revision decides for ever how events of the type move with rewinds, and which of their members are
// offsets. So every fold comes to the same result, whenever it runs. The last valid revision has the schema, which the
// [Gate] of a log checks when an event is appended. No fold reads it.
package registry

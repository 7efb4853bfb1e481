// Package secret knows which values of a run setting are secrets: keys of providers,
// environment variables, headers, arguments of commands, credentials in URLs. Take puts a
// placeholder, "tally:secret:1" and so on, where each of them stands, and Put brings them
// back: together they change no byte. So a setting without its secrets can stand in a log
// that is never rewritten, and the secrets in a document that is sealed.
//
// What is a secret is said by the table of table.go, by its place or its name, whatever it
// looks like. Elsewhere a value that looks like a key is a suspect: it stays, and is named
// to whoever may decide. Nothing of this package prints a value.
package secret

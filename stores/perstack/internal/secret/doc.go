// Package secret finds the secrets in a run setting: keys of providers, environment variables, headers, arguments of
// commands, credentials in URLs. Take replaces each by a placeholder, "tally:secret:1" and so on, and Put restores
// them, byte for byte. So the setting without its secrets can be stored in a log that is never rewritten, and the
// secrets in a sealed document.
//
// The table in table.go identifies secrets by position or name, whatever their value. Elsewhere, a value that looks
// like a key is a suspect: it stays, and is reported to the caller. This package never prints a value.
package secret

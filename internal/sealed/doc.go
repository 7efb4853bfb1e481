// Package sealed encrypts content that must not be readable in the log. A box is sealed with AES-256-GCM under a key
// that is never stored beside it. The file of keys belongs to the user, and TALLY_SECRET_KEY_FILE names it. Without the
// file a store works, except for sealed documents.
//
// A Ring has one or more keys. The newest key seals and every key opens, so keys can be rotated step by step. A box
// names the key that sealed it. It belongs to one context, such as the subject of a document, and does not open in
// another one. Errors of this package never contain a key or a clear value.
package sealed

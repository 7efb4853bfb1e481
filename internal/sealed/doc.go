// Package sealed encrypts what must not stand in the log in clear. A box is sealed with
// AES-256-GCM under a key that is never stored beside it: the file of keys is the user's,
// TALLY_SECRET_KEY_FILE names it, and without it a store works, but for what is sealed.
//
// A Ring has one or more keys. The newest seals, every one opens, so keys can be changed
// one after the other. A box names the key that it was sealed with, and belongs to one
// context, such as the subject of the document that it is: moved elsewhere, it does not
// open. No error of this package has a key or a clear value in its text.
package sealed

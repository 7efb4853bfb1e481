package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
)

// keySize is that of AES-256, in bytes.
const keySize = 32

// ErrNoKey says that there are no keys: TALLY_SECRET_KEY_FILE names no file.
var ErrNoKey = errors.New("there is no key: " + Variable + " names no file with keys")

// ErrSealBroken says that a box is not what was sealed with the key that it names, in the
// context that it is opened in: its bytes were changed, it was moved, or another key has
// that name now.
var ErrSealBroken = errors.New("the seal is broken")

// An UnknownKeyError says that a box was sealed with a key that is not among those there are.
type UnknownKeyError struct{ ID string }

func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("it is sealed with the key %q, which is not in the file that %s names", e.ID, Variable)
}

// A Ring is a set of keys. It holds ciphers and no bytes of keys, so that printing it shows
// none. A nil Ring has no keys: it seals and opens nothing. It is safe for concurrent use.
type Ring struct{ keys []key }

// key is a key of a ring.
type key struct {
	id   string
	aead cipher.AEAD
}

// IDs returns the ids of the keys, the newest last.
func (r *Ring) IDs() []string {
	if r == nil {
		return nil
	}
	ids := make([]string, len(r.keys))
	for i, k := range r.keys {
		ids[i] = k.id
	}
	return ids
}

// Newest returns the id of the key that seals, "" if there is none.
func (r *Ring) Newest() string {
	if r == nil || len(r.keys) == 0 {
		return ""
	}
	return r.keys[len(r.keys)-1].id
}

// String names the keys by their ids.
func (r *Ring) String() string { return "keys " + strings.Join(r.IDs(), ", ") }

// Seal seals plain under the newest key, for a context alone. It returns ErrNoKey if there
// is none. The same content sealed twice is two different boxes.
func (r *Ring) Seal(plain []byte, context string) (Box, error) {
	if r.Newest() == "" {
		return Box{}, ErrNoKey
	}
	k := r.keys[len(r.keys)-1]
	nonce := make([]byte, k.aead.NonceSize())
	rand.Read(nonce) // which does not return without randomness
	return Box{KeyID: k.id, Nonce: nonce, Sealed: k.aead.Seal(nil, nonce, plain, bound(context))}, nil
}

// Open returns what was sealed in a box for the same context. It returns ErrNoKey for a ring
// without keys, *UnknownKeyError if the key of the box is not in it, and ErrSealBroken if
// that key does not open it.
func (r *Ring) Open(b Box, context string) ([]byte, error) {
	if r.Newest() == "" {
		return nil, ErrNoKey
	}
	for _, k := range r.keys {
		if k.id == b.KeyID {
			return k.open(b, context)
		}
	}
	return nil, &UnknownKeyError{b.KeyID}
}

func (k key) open(b Box, context string) ([]byte, error) {
	if len(b.Nonce) != k.aead.NonceSize() {
		return nil, ErrSealBroken
	}
	plain, err := k.aead.Open(nil, b.Nonce, b.Sealed, bound(context))
	if err != nil {
		return nil, ErrSealBroken
	}
	return plain, nil
}

// bound is what a seal authenticates beside the content: the form of the box, and where it
// belongs.
func bound(context string) []byte { return []byte("tally sealed v1\n" + context) }

// newKey makes a key of 32 bytes, which it does not keep.
func newKey(id string, secret []byte) (key, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCM(block)
	return key{id, aead}, err
}

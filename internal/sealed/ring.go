package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
)

// keySize is the size of a key of AES-256, in bytes.
const keySize = 32

// ErrNoKey reports that there are no keys: TALLY_SECRET_KEY_FILE names no file.
var ErrNoKey = errors.New("there is no key: " + Variable + " names no file with keys")

// ErrSealBroken reports that a box does not open with the key that it names. Its bytes were changed, it was moved to
// another context, or another key has that id now.
var ErrSealBroken = errors.New("the seal is broken")

// An UnknownKeyError reports that a box was sealed with a key that is not in the ring.
type UnknownKeyError struct{ ID string }

func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("sealed with the key %q, which is not in the file that %s names", e.ID, Variable)
}

// A Ring is a set of keys. It holds ciphers and no key bytes, so printing it reveals none. A nil Ring has no keys: it
// cannot seal or open anything. A Ring is safe for concurrent use.
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

// Newest returns the id of the key that seals, or "" if the ring has no keys.
func (r *Ring) Newest() string {
	if r == nil || len(r.keys) == 0 {
		return ""
	}
	return r.keys[len(r.keys)-1].id
}

// String names the keys by their ids.
func (r *Ring) String() string { return "keys " + strings.Join(r.IDs(), ", ") }

// Seal seals content under the newest key, for one context. If the ring has no keys, it returns ErrNoKey. Sealing the
// same content twice returns two different boxes.
func (r *Ring) Seal(plain []byte, context string) (Box, error) {
	if r.Newest() == "" {
		return Box{}, ErrNoKey
	}
	k := r.keys[len(r.keys)-1]
	nonce := make([]byte, k.aead.NonceSize())
	rand.Read(nonce) // never fails: see crypto/rand
	return Box{KeyID: k.id, Nonce: nonce, Sealed: k.aead.Seal(nil, nonce, plain, bound(context))}, nil
}

// Open returns the content of a box that was sealed for the same context. It returns ErrNoKey if the ring has no keys,
// *UnknownKeyError if the ring lacks the key of the box, and ErrSealBroken if that key does not open the box.
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

// bound returns the additional data that a seal authenticates: the format of the box, and its context.
func bound(context string) []byte { return []byte("tally sealed v1\n" + context) }

// newKey makes a key from 32 bytes, which it does not retain.
func newKey(id string, secret []byte) (key, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCM(block)
	return key{id, aead}, err
}

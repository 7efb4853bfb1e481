package sealed

import (
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Kind is the kind of documents with sealed content.
const Kind = "secret"

// ContentType is the media type of a sealed document.
const ContentType = "application/json"

// A Box is sealed content.
type Box struct {
	KeyID  string // id of the key that sealed the content
	Nonce  []byte // 12 random bytes
	Sealed []byte // encrypted content, followed by the authentication tag of 16 bytes
}

// Marshal returns a box as JSON: {"keyID", "nonce", "box"}, the last two in base64.
func (b Box) Marshal() []byte {
	text := rawjson.AppendString([]byte(`{"keyID":`), b.KeyID)
	text = append(base64.StdEncoding.AppendEncode(append(text, `,"nonce":"`...), b.Nonce), '"')
	return append(base64.StdEncoding.AppendEncode(append(text, `,"box":"`...), b.Sealed), `"}`...)
}

// ParseBox reads the output of Marshal. Its error matches ErrSealBroken and names the invalid member without its value,
// because the value may be a secret that was written unsealed.
func ParseBox(text []byte) (Box, error) {
	members, err := rawjson.Object(text)
	if err != nil {
		return Box{}, fmt.Errorf("%w: not a sealed document", ErrSealBroken)
	}
	b := Box{KeyID: members.Text("keyID")}
	if !isKeyID(b.KeyID) {
		return Box{}, fmt.Errorf("%w: the member keyID is not the id of a key", ErrSealBroken)
	}
	if b.Nonce, err = bytesOf(members, "nonce"); err == nil {
		b.Sealed, err = bytesOf(members, "box")
	}
	return b, err
}

// bytesOf reads a member in base64.
func bytesOf(members rawjson.Members, name string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(members.Text(name))
	if err != nil || len(b) == 0 {
		return nil, fmt.Errorf("%w: the member %s is not base64", ErrSealBroken, name)
	}
	return b, nil
}

// CheckDocument returns an error if the content of a document of this kind is not sealed. Unsealed, the secret would
// stay in the log forever.
func CheckDocument(content []byte, _ string) error {
	if _, err := ParseBox(content); err != nil {
		return errors.New("documents of the kind " + Kind + " must be sealed: an unsealed one would stay in the log in clear")
	}
	return nil
}

// SealDocument seals content for one document. It does not open under another kind, id or namespace.
func (r *Ring) SealDocument(doc events.Subject, plain []byte) ([]byte, error) {
	box, err := r.Seal(plain, doc.NATS())
	if err != nil {
		return nil, err
	}
	return box.Marshal(), nil
}

// OpenDocument opens the sealed content of a document. It returns the errors of ParseBox and Open.
func (r *Ring) OpenDocument(doc events.Subject, content []byte) ([]byte, error) {
	box, err := ParseBox(content)
	if err != nil {
		return nil, err
	}
	return r.Open(box, doc.NATS())
}

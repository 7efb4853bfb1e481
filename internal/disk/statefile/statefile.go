// Package statefile keeps a program's own settings and state: small JSON objects, each in a file of its own, replaced
// as a whole. Every file ends with a checksum. If the file was changed in any other way, as by a failing disk, reading
// it returns a *DamageError.
//
//	{"version":1,"limits":{"store":1000},"crc32":"5ad2a7c1"}
//
// A file of an earlier version of tally has no checksum. It is accepted if each of its members is known, and gets a
// checksum when it is written again.
package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/tallylog/tally/internal/disk/durable"
)

// DamageError reports a file whose content is not as it was written.
type DamageError struct {
	Path string
	Err  error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s cannot be read: %v", filepath.Base(e.Path), e.Err)
}

// Unwrap returns the reason.
func (e *DamageError) Unwrap() error { return e.Err }

// NewerError reports a file that a newer version of tally wrote.
type NewerError struct {
	Path           string
	Version, Known int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s has version %d, this program knows %d", filepath.Base(e.Path), e.Version, e.Known)
}

// Write replaces a file, readable only by this user. The value is a JSON object.
func Write(path string, v any, sync durable.Sync) error {
	text, err := Encode(v)
	if err != nil {
		return err
	}
	return durable.Replace(path, text, 0o600, sync)
}

// Encode returns the content of a file.
func Encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	body, is := bytes.CutSuffix(text, []byte("}"))
	if !is || len(body) < 2 {
		return nil, fmt.Errorf("statefile: %T does not encode as a JSON object with members", v)
	}
	return fmt.Appendf(body, tail, crc32.ChecksumIEEE(body)), nil
}

// tail follows the members of a file. Its checksum covers all of them.
const tail = `,"crc32":"%08x"}` + "\n"

// Read decodes a file of a version into a pointer to a struct. If the file is missing, the error is fs.ErrNotExist.
// Other errors: *DamageError, *NewerError, the system's.
func Read(path string, version int, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return Decode(path, text, version, v)
}

// Decode decodes the content of a file. Its errors name path.
func Decode(path string, text []byte, version int, v any) error {
	body, err := open(text)
	if err != nil {
		return &DamageError{path, err}
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return &DamageError{path, err}
	}
	if head.Version > version {
		return &NewerError{path, head.Version, version}
	}
	if head.Version != version {
		return &DamageError{path, fmt.Errorf("version %d, want %d", head.Version, version)}
	}
	fresh := reflect.New(reflect.TypeOf(v).Elem())
	if err := strict(body, fresh.Interface()); err != nil {
		return &DamageError{path, err}
	}
	reflect.ValueOf(v).Elem().Set(fresh.Elem())
	return nil
}

// open returns the object of a file without its checksum.
func open(text []byte) (object []byte, err error) {
	size := len(fmt.Sprintf(tail, 0))
	at := len(text) - size
	if at < 0 || !bytes.HasPrefix(text[at:], []byte(`,"crc32":"`)) {
		return text, nil // an earlier version
	}
	body := text[:at]
	if want := fmt.Sprintf(tail, crc32.ChecksumIEEE(body)); string(text[at:]) != want {
		return nil, errors.New("checksum mismatch")
	}
	return append(bytes.Clone(body), '}'), nil
}

// strict decodes an object. Its members must be those of the struct, with the same spelling, and nothing may follow it.
func strict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the JSON object")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	for name := range members {
		if !hasMember(reflect.TypeOf(v).Elem(), name) {
			return fmt.Errorf("unknown member %q", name)
		}
	}
	return nil
}

// hasMember reports whether a struct has a member with exactly this JSON name.
func hasMember(of reflect.Type, name string) bool {
	for i := range of.NumField() {
		f := of.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && (tag == name || tag == "" && f.Name == name) {
			return true
		}
	}
	return false
}

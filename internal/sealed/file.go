package sealed

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Variable names the file of keys.
const Variable = "TALLY_SECRET_KEY_FILE"

// maxFile bounds a file of keys, in bytes.
const maxFile = 64 << 10

// A FileError says why a file of keys is not used. It has nothing of what stands in it.
type FileError struct {
	Path   string
	Line   int // from 1; 0: all of it
	Reason string
}

func (e *FileError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s, line %d: %s", e.Path, e.Line, e.Reason)
	}
	return fmt.Sprintf("%s: %s", e.Path, e.Reason)
}

// FromEnvironment reads the file that TALLY_SECRET_KEY_FILE names. It returns ErrNoKey if
// that is not set or empty, and otherwise the errors of ReadFile.
func FromEnvironment() (*Ring, error) {
	path := os.Getenv(Variable)
	switch {
	case path == "":
		return nil, ErrNoKey
	case IsKey(path): // which must not be in the text of the error
		return nil, &FileError{Path: Variable, Reason: "it is a key itself, and has to name the file that has the keys"}
	}
	return ReadFile(path)
}

// IsKey reports whether what should name a file of keys is a key, and not to be shown.
func IsKey(path string) bool {
	_, err := Parse([]byte(path))
	return err == nil
}

// ReadFile reads a file of keys: see Parse. It is used only if it is a file of this user's
// that nobody else may read or write, mode 0600 or less; where a system has no such modes,
// that is not looked at. Whatever is wrong is a *FileError.
func ReadFile(path string) (*Ring, error) {
	data, err := readOwn(path)
	var r *Ring
	if err == nil {
		r, err = Parse(data)
	}
	if wrong, ok := errors.AsType[*FileError](err); ok {
		wrong.Path = path
		return nil, wrong
	}
	if wrong, ok := errors.AsType[*fs.PathError](err); ok {
		err = wrong.Err // the path is said once
	}
	if err != nil {
		return nil, &FileError{Path: path, Reason: err.Error()}
	}
	return r, nil
}

// readOwn reads a file that is this user's alone.
func readOwn(path string) ([]byte, error) {
	// A pipe would be waited for, so it is looked at before it is opened; what is opened is
	// looked at again, as it may be another file by now.
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, &FileError{Reason: "it is not a file"}
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if reason := shared(info); reason != "" {
		return nil, &FileError{Reason: reason}
	}
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// Parse reads keys. They are 32 bytes as they are, or lines of 64 hex digits, the newest key
// last, with an id and a colon before them or not. Empty lines and those that begin with #
// mean nothing. A key without an id has one that is made of it. What is wrong is a
// *FileError without a path.
func Parse(data []byte) (*Ring, error) {
	if len(data) > maxFile {
		return nil, &FileError{Reason: fmt.Sprintf("it has more than %d bytes", maxFile)}
	}
	if len(data) == keySize && !isText(data) {
		return parsed([]line{{number: 0, secret: slices.Clone(data)}})
	}
	var lines []line
	number := 0
	for text := range bytes.Lines(data) {
		number++
		text = bytes.TrimSpace(text)
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		l, err := parseLine(string(text))
		if err != nil {
			return nil, &FileError{Line: number, Reason: err.Error()}
		}
		l.number = number
		lines = append(lines, l)
	}
	return parsed(lines)
}

// line is a line with a key.
type line struct {
	number int
	id     string // "": it has none
	secret []byte
}

// parseLine reads a key in hex, with an id or without. Its errors have nothing of the line.
func parseLine(text string) (line, error) {
	id, digits, named := strings.Cut(text, ":")
	if !named {
		id, digits = "", text
	}
	if _, digits := hex.DecodeString(id); named && (!isKeyID(id) || digits == nil && len(id) >= keySize) { // which would be shown
		return line{}, errors.New("the id of a key is 1 to 64 of A-Z a-z 0-9 _ . - and not a key itself")
	}
	secret, err := hex.DecodeString(strings.TrimSpace(digits))
	if err != nil || len(secret) != keySize {
		return line{}, fmt.Errorf("a key is 32 bytes, as 64 hex digits or as they are; this one has %d characters", len(digits))
	}
	return line{id: id, secret: secret}, nil
}

// parsed makes a ring of lines.
func parsed(lines []line) (*Ring, error) {
	r := &Ring{}
	secrets := make(map[string]int) // lines by their keys
	for _, l := range lines {
		if other, has := secrets[string(l.secret)]; has {
			return nil, &FileError{Line: l.number, Reason: fmt.Sprintf("it is the key of line %d again", other)}
		}
		secrets[string(l.secret)] = l.number
		if isUniform(l.secret) { // a file of zeros is what a crash may leave
			return nil, &FileError{Line: l.number, Reason: "all bytes of the key are the same"}
		}
		if l.id == "" {
			l.id = idOf(l.secret)
		}
		if slices.Contains(r.IDs(), l.id) {
			return nil, &FileError{Line: l.number, Reason: fmt.Sprintf("a key before it has the id %q", l.id)}
		}
		k, err := newKey(l.id, l.secret)
		if err != nil {
			return nil, err
		}
		r.keys = append(r.keys, k)
	}
	if len(r.keys) == 0 {
		return nil, &FileError{Reason: "there is no key in it"}
	}
	return r, nil
}

// idOf names a key that has no name. The key cannot be found by it.
func idOf(secret []byte) string {
	sum := sha256.Sum256(append([]byte("tally key id\n"), secret...))
	return hex.EncodeToString(sum[:6])
}

// isKeyID reports whether text can be the id of a key.
func isKeyID(text string) bool {
	odd := func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '.' || r == '-')
	}
	return 0 < len(text) && len(text) <= 64 && !strings.ContainsFunc(text, odd)
}

// isText reports whether bytes are printable ASCII: of random ones that is not to be
// expected, so they are something else, such as half a key in hex.
func isText(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return (c < ' ' || c > '~') && c != '\n' && c != '\r' && c != '\t' })
}

func isUniform(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c != b[0] })
}

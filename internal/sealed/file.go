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

// Variable is the environment variable that names the file of keys.
const Variable = "TALLY_SECRET_KEY_FILE"

// maxFile bounds a file of keys, in bytes.
const maxFile = 64 << 10

// A FileError is the reason why a file of keys is not used. It never contains content of the file.
type FileError struct {
	Path   string
	Line   int // from 1; 0: the whole file
	Reason string
}

func (e *FileError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s, line %d: %s", e.Path, e.Line, e.Reason)
	}
	return fmt.Sprintf("%s: %s", e.Path, e.Reason)
}

// FromEnvironment reads the file that TALLY_SECRET_KEY_FILE names. If the variable is unset or empty, it returns
// ErrNoKey. Otherwise it returns the errors of ReadFile.
func FromEnvironment() (*Ring, error) {
	path := os.Getenv(Variable)
	switch {
	case path == "":
		return nil, ErrNoKey
	case IsKey(path): // the error must not contain it
		return nil, &FileError{Path: Variable, Reason: "the value is a key: want the path of a file with keys"}
	}
	return ReadFile(path)
}

// IsKey reports whether a value that should be the path of a file of keys is a key instead. Such a value must not be
// shown.
func IsKey(path string) bool {
	_, err := Parse([]byte(path))
	return err == nil
}

// ReadFile reads a file of keys; see Parse. The file must belong to this user, and nobody else may read or write it:
// its mode is 0600 or less. On systems without such modes this is not checked. All errors are *FileError.
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
		err = wrong.Err // the path is in FileError already
	}
	if err != nil {
		return nil, &FileError{Path: path, Reason: err.Error()}
	}
	return r, nil
}

// readOwn reads a file that only this user can access.
func readOwn(path string) ([]byte, error) {
	// Opening a pipe would block, so the file is checked before it is opened. It is checked again afterwards, because
	// it may be another file by then.
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, &FileError{Reason: "not a regular file"}
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

// Parse reads keys. The data are 32 raw bytes, or lines of 64 hex digits with the newest key last. A line may begin
// with the id of the key and a colon. Empty lines and lines that begin with # are skipped. A key without an id gets one
// that is derived from the key. All errors are *FileError without a path.
func Parse(data []byte) (*Ring, error) {
	if len(data) > maxFile {
		return nil, &FileError{Reason: fmt.Sprintf("the file has more than %d bytes", maxFile)}
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
	id     string // "" if the line has no id
	secret []byte
}

// parseLine reads a key in hex, with or without an id. Its errors contain nothing of the line.
func parseLine(text string) (line, error) {
	id, digits, named := strings.Cut(text, ":")
	if !named {
		id, digits = "", text
	}
	if _, digits := hex.DecodeString(id); named && (!isKeyID(id) || digits == nil && len(id) >= keySize) { // ids are shown, so a key must not be one
		return line{}, errors.New("the id of a key is 1 to 64 of A-Z a-z 0-9 _ . - and not a key itself")
	}
	secret, err := hex.DecodeString(strings.TrimSpace(digits))
	if err != nil || len(secret) != keySize {
		return line{}, fmt.Errorf("a key is 32 bytes, raw or as 64 hex digits; this one has %d characters", len(digits))
	}
	return line{id: id, secret: secret}, nil
}

// parsed makes a ring from lines. It refuses keys and ids that occur twice.
func parsed(lines []line) (*Ring, error) {
	r := &Ring{}
	secrets := make(map[string]int) // line numbers by key
	for _, l := range lines {
		if other, has := secrets[string(l.secret)]; has {
			return nil, &FileError{Line: l.number, Reason: fmt.Sprintf("the key is the same as in line %d", other)}
		}
		secrets[string(l.secret)] = l.number
		if isUniform(l.secret) { // a crash can leave a file of zeros
			return nil, &FileError{Line: l.number, Reason: "all bytes of the key are the same"}
		}
		if l.id == "" {
			l.id = idOf(l.secret)
		}
		if slices.Contains(r.IDs(), l.id) {
			return nil, &FileError{Line: l.number, Reason: fmt.Sprintf("an earlier key has the id %q too", l.id)}
		}
		k, err := newKey(l.id, l.secret)
		if err != nil {
			return nil, err
		}
		r.keys = append(r.keys, k)
	}
	if len(r.keys) == 0 {
		return nil, &FileError{Reason: "the file has no key"}
	}
	return r, nil
}

// idOf derives an id from a key. The key cannot be computed from the id.
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

// isText reports whether bytes are printable ASCII. A random key almost never is, so such bytes are something else, for
// example half of a key in hex.
func isText(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return (c < ' ' || c > '~') && c != '\n' && c != '\r' && c != '\t' })
}

func isUniform(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c != b[0] })
}

// Package filename makes file names from ids, the same on every system.
package filename

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// File names made from ids have at most maxName bytes. A longer one is cut and ends with shortMark and a hash of the
// id.
const (
	maxName   = 200
	keptName  = 160
	shortMark = "=~"
	shortHash = 32 // hex digits
)

const upperHex = "0123456789ABCDEF"

// Of returns a file name for an id, the same on every system. An id that can be a file name everywhere stays as it is.
// Bytes that file names cannot have become =XX, so a name never leaves its folder. A name of more than 200 bytes is cut
// and gets a hash. [Parse] is the inverse. (Names that differ only in case or Unicode form are one file on macOS and
// Windows.)
func Of(id string) string {
	var b strings.Builder
	reserved := isReserved(id)
	for i := 0; i < len(id); i++ {
		if c := id[i]; isUnsafe(id, i) || reserved && i == 0 {
			fmt.Fprintf(&b, "=%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	if name := b.String(); name != "" && len(name) <= maxName {
		return name
	}
	return shorten(b.String(), id)
}

// isUnsafe reports whether a file name must not have the byte at i.
func isUnsafe(id string, i int) bool {
	switch c := id[i]; {
	case c < 0x20 || c == 0x7f:
		return true
	case strings.IndexByte(`/\:*?"<>|`, c) >= 0:
		return true
	case c == '.' || c == ' ':
		return i == len(id)-1 // Windows drops these at the end; "." and ".." are not file names
	case c == '=': // where it would look like an escape
		return strings.HasPrefix(id[i:], shortMark) || IsEscape(id[i:])
	}
	return false
}

func isHex(c byte) bool { return strings.IndexByte(upperHex, c) >= 0 }

// isReserved reports whether Windows takes the name for a device.
func isReserved(id string) bool {
	base, _, _ := strings.Cut(id, ".")
	base = strings.ToUpper(strings.TrimRight(base, " "))
	switch base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	device := strings.HasPrefix(base, "COM") || strings.HasPrefix(base, "LPT")
	return device && len(base) == 4 && '0' <= base[3] && base[3] <= '9'
}

func shorten(escaped, id string) string {
	kept := escaped[:min(keptName, len(escaped))]
	for len(kept) > 0 && len(kept) < len(escaped) && !utf8.RuneStart(escaped[len(kept)]) {
		kept = kept[:len(kept)-1]
	}
	if at := strings.LastIndexByte(kept, '='); at >= 0 && at > len(kept)-3 {
		kept = kept[:at]
	}
	sum := sha256.Sum256([]byte(id))
	return kept + shortMark + hex.EncodeToString(sum[:])[:shortHash]
}

// Parse returns the id of a name that Of made. It returns false for a shortened name, which does not have the whole id.
func Parse(name string) (id string, ok bool) {
	id = Unescape(name)
	return id, id != "" && Of(id) == name
}

// IsShortened reports whether a name has the form of a shortened long id.
func IsShortened(name string) bool {
	at := len(name) - shortHash - len(shortMark)
	if at < 0 || name[at:at+len(shortMark)] != shortMark {
		return false
	}
	return strings.Trim(name[at+len(shortMark):], "0123456789abcdef") == ""
}

// IsEscape reports whether a name begins with an escape =XX.
func IsEscape(name string) bool {
	return len(name) >= 3 && name[0] == '=' && isHex(name[1]) && isHex(name[2])
}

// Unescape replaces each escape =XX with its byte.
func Unescape(name string) string {
	if !strings.Contains(name, "=") {
		return name
	}
	b := make([]byte, 0, len(name))
	for i := 0; i < len(name); i++ {
		if IsEscape(name[i:]) {
			b = append(b, byte(strings.IndexByte(upperHex, name[i+1])<<4|strings.IndexByte(upperHex, name[i+2])))
			i += 2
			continue
		}
		b = append(b, name[i])
	}
	return string(b)
}

// Is reports whether name can be a file's name on this kind of system: one element of a path, neither "." nor "..".
func Is(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\x00")
}

package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
)

// Version is the version of a manifest's format.
const Version = 1

// A Manifest is one backup.
type Manifest struct {
	Version int       `json:"version"`
	Name    string    `json:"-"` // the backup's name: its time
	Time    time.Time `json:"time"`

	Source  string   `json:"source"`  // the directory that was copied
	Log     string   `json:"log"`     // identifies the source in all of its backups; a folder refuses backups of another one
	Program string   `json:"program"` // its version
	Servers []string `json:"servers"` // versions of nats-server that wrote the files
	Durable uint64   `json:"durable"` // the backup has every record up to here
	Lost    int      `json:"lost"`    // records known to be lost at that time

	Bytes    int64  `json:"bytes"`    // of all files
	NewBytes int64  `json:"newBytes"` // of contents that no earlier backup in the folder had
	Files    []File `json:"files"`
}

// A File is a file of a backup.
type File struct {
	Name  string `json:"name"`            // slash-separated, relative to the directory
	Parts []Part `json:"parts,omitempty"` // in order

	// Stamp is the file's stamp if it was copied whole: while it is the same, the file is not read again. Zero:
	// unknown, or the file had changed too recently.
	Stamp Stamp `json:"stamp,omitzero"`
}

// A Part is a content that is a part of a file.
type Part struct {
	Size int64 `json:"size"`
	Sum  Sum   `json:"sha256"`
}

// A Stamp changes when a file does.
type Stamp struct {
	Inode   uint64 `json:"inode"`
	Size    int64  `json:"size"`
	Changed int64  `json:"changed"` // in nanoseconds since 1970
}

// Size returns the size of the file.
func (f File) Size() (n int64) {
	for _, p := range f.Parts {
		n += p.Size
	}
	return n
}

// A Sum is the SHA-256 of an object's content.
type Sum [sha256.Size]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// MarshalText writes the sum in hexadecimal digits.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads only the form that MarshalText writes.
func (s *Sum) UnmarshalText(text []byte) error {
	if len(text) != 2*len(s) || strings.ToLower(string(text)) != string(text) {
		return fmt.Errorf("%q is not a SHA-256", text)
	}
	_, err := hex.Decode(s[:], text)
	return err
}

// The name of a manifest's file is its time and the beginning of its SHA-256.
const (
	nameLayout = "20060102T150405.000Z"
	nameSum    = 16
	nameEnd    = ".json"
)

// encode returns a manifest's text and the name of its file.
func (m Manifest) encode() (file string, text []byte, err error) {
	text, err = json.Marshal(m)
	if err != nil {
		return "", nil, err
	}
	text = append(text, '\n')
	sum := sha256.Sum256(text)
	return m.Time.Format(nameLayout) + "-" + hex.EncodeToString(sum[:])[:nameSum] + nameEnd, text, nil
}

// nameOf returns the name of a backup, and the sum in its file's name.
func nameOf(file string) (name, sum string, ok bool) {
	stem, ok := strings.CutSuffix(file, nameEnd)
	if !ok || len(stem) != len(nameLayout)+1+nameSum || stem[len(nameLayout)] != '-' {
		return "", "", false
	}
	name, sum = stem[:len(nameLayout)], stem[len(nameLayout)+1:]
	_, err := time.Parse(nameLayout, name)
	return name, sum, err == nil
}

// parse reads a manifest from a file with the given name. A manifest that it accepts was written whole, and its file
// names are distinct and stay below the directory.
func parse(file string, text []byte) (Manifest, error) {
	name, want, ok := nameOf(file)
	if !ok {
		return Manifest{}, errors.New("the file name is not that of a manifest")
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:])[:nameSum] != want {
		return Manifest{}, errors.New("checksum mismatch: the content does not have the SHA-256 in the file name")
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return Manifest{}, err
	}
	if m.Version != Version {
		return Manifest{}, fmt.Errorf("the manifest has version %d, this program reads %d", m.Version, Version)
	}
	m.Name = name
	return m, m.check()
}

// check returns an error if the files cannot be the files of one directory.
func (m Manifest) check() error {
	seen := make(map[string]bool)
	var total int64
	for _, f := range m.Files {
		if err := checkName(f.Name); err != nil {
			return err
		}
		if seen[f.Name] {
			return fmt.Errorf("file %q occurs twice", f.Name)
		}
		seen[f.Name] = true
		for _, p := range f.Parts {
			if p.Size <= 0 || total+p.Size < total {
				return fmt.Errorf("file %q has a part of %d bytes", f.Name, p.Size)
			}
			total += p.Size
		}
	}
	if total != m.Bytes {
		return fmt.Errorf("the files have %d bytes in total, want %d", total, m.Bytes)
	}
	return nil
}

// checkName refuses a name that is not a file below a directory on every system.
func checkName(name string) error {
	local := fs.ValidPath(name) && name != "." && filepath.IsLocal(filepath.FromSlash(name)) && !strings.ContainsAny(name, "\\:\x00")
	if !local {
		return fmt.Errorf("%q is not the name of a file below a directory", name)
	}
	return nil
}

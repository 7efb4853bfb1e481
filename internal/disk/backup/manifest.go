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

// Version is that of the format of a manifest.
const Version = 1

// A Manifest is one backup.
type Manifest struct {
	Version int       `json:"version"`
	Name    string    `json:"-"` // by which it is asked for: its time
	Time    time.Time `json:"time"`

	Source  string   `json:"source"`  // the directory that was copied
	Log     string   `json:"log"`     // what is the same for all copies of it; backups of others are refused in the same folder
	Program string   `json:"program"` // its version
	Servers []string `json:"servers"` // versions of nats-server that wrote the files
	Durable uint64   `json:"durable"` // everything up to here is in it
	Lost    int      `json:"lost"`    // records that were known to be lost then

	Bytes    int64  `json:"bytes"`    // of all files
	NewBytes int64  `json:"newBytes"` // of them, those that no backup in the folder had
	Files    []File `json:"files"`
}

// A File is a file of a backup.
type File struct {
	Name  string `json:"name"`            // with slashes, below the directory
	Parts []Part `json:"parts,omitempty"` // one after the other

	// Stamp is how the file was found, if it was copied whole: as long as it is the same, the
	// file is not read again. Zero: not known, or it had only just been changed.
	Stamp Stamp `json:"stamp,omitzero"`
}

// A Part is a stretch of a file.
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

// Size is that of the file.
func (f File) Size() (n int64) {
	for _, p := range f.Parts {
		n += p.Size
	}
	return n
}

// A Sum is the SHA-256 of what is in an object.
type Sum [sha256.Size]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// MarshalText writes the sum in hexadecimal digits.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote, and nothing else.
func (s *Sum) UnmarshalText(text []byte) error {
	if len(text) != 2*len(s) || strings.ToLower(string(text)) != string(text) {
		return fmt.Errorf("%q is not a SHA-256", text)
	}
	_, err := hex.Decode(s[:], text)
	return err
}

// The name of a manifest's file is its time, and the beginning of its SHA-256.
const (
	nameLayout = "20060102T150405.000Z"
	nameSum    = 16
	nameEnd    = ".json"
)

// encode returns a manifest as it is written, and the name of its file.
func (m Manifest) encode() (file string, text []byte, err error) {
	text, err = json.Marshal(m)
	if err != nil {
		return "", nil, err
	}
	text = append(text, '\n')
	sum := sha256.Sum256(text)
	return m.Time.Format(nameLayout) + "-" + hex.EncodeToString(sum[:])[:nameSum] + nameEnd, text, nil
}

// nameOf returns the name by which a backup is asked for, and the sum in the name of its
// file.
func nameOf(file string) (name, sum string, ok bool) {
	stem, ok := strings.CutSuffix(file, nameEnd)
	if !ok || len(stem) != len(nameLayout)+1+nameSum || stem[len(nameLayout)] != '-' {
		return "", "", false
	}
	name, sum = stem[:len(nameLayout)], stem[len(nameLayout)+1:]
	_, err := time.Parse(nameLayout, name)
	return name, sum, err == nil
}

// parse reads a manifest out of a file of that name. What it says can be relied on: it was
// written whole, no name of a file leaves the directory, and none is there twice.
func parse(file string, text []byte) (Manifest, error) {
	name, want, ok := nameOf(file)
	if !ok {
		return Manifest{}, errors.New("it does not have the name of a backup")
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:])[:nameSum] != want {
		return Manifest{}, errors.New("it is damaged: it does not have the SHA-256 in its name")
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return Manifest{}, err
	}
	if m.Version != Version {
		return Manifest{}, fmt.Errorf("it has version %d, this program knows %d", m.Version, Version)
	}
	m.Name = name
	return m, m.check()
}

// check returns an error if the files cannot be those of a directory.
func (m Manifest) check() error {
	seen := make(map[string]bool)
	var total int64
	for _, f := range m.Files {
		if err := checkName(f.Name); err != nil {
			return err
		}
		if seen[f.Name] {
			return fmt.Errorf("file %q is there twice", f.Name)
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
		return fmt.Errorf("the files have %d bytes, not %d", total, m.Bytes)
	}
	return nil
}

// checkName refuses what is not the name of a file below a directory on every system.
func checkName(name string) error {
	local := fs.ValidPath(name) && name != "." && filepath.IsLocal(filepath.FromSlash(name)) && !strings.ContainsAny(name, "\\:\x00")
	if !local {
		return fmt.Errorf("%q is not the name of a file below a directory", name)
	}
	return nil
}

package storedir

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
)

const (
	markFile    = "mark"
	markVersion = 1

	// WatermarkFile is the name of the file with the highest durable offset.
	WatermarkFile = "watermark"
)

// Mark is the owner's record about the store, kept beside the server's files.
type Mark struct {
	Version int           `json:"version"`
	Streams []string      `json:"streams"` // of the store's log
	Boot    string        `json:"boot"`    // identifies the machine's boot under which the owner ran; "": unknown
	Clean   bool          `json:"clean"`   // the owner stopped by itself
	Durable events.Offset `json:"durable"` // the last durable offset at that time
	Servers []string      `json:"servers"` // versions of the servers that wrote to the store, each once
}

// LoadMark reads the mark. If the file is missing, LoadMark returns the zero Mark. If the file is damaged, the error is
// a *statefile.DamageError; if a newer tally wrote it, a *NewerError.
func LoadMark(dir string) (m Mark, err error) {
	if err := readState(filepath.Join(dir, markFile), markVersion, &m); !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	return Mark{}, nil
}

// WriteMark replaces the mark and syncs it. It sets the version of the format.
func WriteMark(dir string, m Mark) error {
	m.Version = markVersion
	return statefile.Write(filepath.Join(dir, markFile), m, durable.WithSync)
}

// readState reads a state file. If a newer tally wrote it, the error is a *NewerError.
func readState(path string, version int, v any) error {
	err := statefile.Read(path, version, v)
	if newer, is := errors.AsType[*statefile.NewerError](err); is {
		return &NewerError{Dir: filepath.Dir(path), File: filepath.Base(path), Version: newer.Version, Known: newer.Known}
	}
	return err
}

// IsDamaged reports whether an error of LoadMark or ReadHoles means a damaged file.
func IsDamaged(err error) bool {
	_, is := errors.AsType[*statefile.DamageError](err)
	return is
}

// WatermarkText returns the content of the watermark's file: the offset and its checksum.
func WatermarkText(at events.Offset) []byte {
	number := fmt.Appendf(nil, "%016x", uint64(at))
	return fmt.Appendf(number, " %08x\n", crc32.ChecksumIEEE(number))
}

// LoadWatermark returns the highest durable offset in the watermark's file. If the file is missing or damaged, it
// returns 0.
func LoadWatermark(dir string) (at events.Offset) {
	text, _ := os.ReadFile(filepath.Join(dir, WatermarkFile))
	_, _ = fmt.Sscanf(string(text), "%016x", &at)
	if !bytes.HasPrefix(text, WatermarkText(at)) {
		return 0
	}
	return at
}

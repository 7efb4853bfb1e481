package catalog

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
)

// SQLite has no checksum for what it stores: a flipped bit in a row is another row. So a writer
// that closes a file leaves its checksum beside it, and whoever opens the file next holds it
// against that. A file that is in use, or whose writer was killed, has none.

const (
	sealSuffix  = ".sum"
	sealVersion = 1

	// maxSealed bounds the files that have a checksum: one of this size takes about 20 ms to read.
	maxSealed = 64 << 20
)

// seal is what stands beside a file.
type seal struct {
	Version int    `json:"version"`
	Size    int64  `json:"size"`
	Content string `json:"content"` // CRC-32C
}

// sealError says that a file is not as its last writer left it.
type sealError struct{ path string }

func (e *sealError) Error() string { return "it is not as it was left: its checksum is another" }

func isUnsealed(err error) bool {
	_, is := errors.AsType[*sealError](err)
	return is
}

// sealOf returns the seal of a file as it is now, false if it is not to have one.
func sealOf(path string) (seal, bool, error) {
	if ahead, err := os.Stat(path + "-wal"); err == nil && ahead.Size() > 0 {
		return seal{}, false, nil // somebody writes
	}
	f, err := os.Open(path)
	if err != nil {
		return seal{}, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() > maxSealed {
		return seal{}, false, err
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	n, err := io.Copy(sum, f)
	return seal{sealVersion, n, fmt.Sprintf("%08x", sum.Sum32())}, err == nil, err
}

// sealFile leaves the checksum of a file that was closed. Without one the next user believes the file.
func sealFile(path string) {
	if s, ok, err := sealOf(path); err == nil && ok {
		_ = statefile.Write(path+sealSuffix, s, durable.NoSync)
	}
}

// checkSeal returns a *sealError if a file is not as it was left. A seal that is damaged itself
// says nothing, and a writer takes the seal away before it writes.
func checkSeal(path string) error {
	var left, again seal
	if err := statefile.Read(path+sealSuffix, sealVersion, &left); err != nil {
		return nil
	}
	now, ok, err := sealOf(path)
	if err != nil || !ok || now == left {
		return nil // what is wrong with it, opening says
	}
	if statefile.Read(path+sealSuffix, sealVersion, &again) != nil || again != left {
		return nil // a writer came meanwhile
	}
	return &sealError{path}
}

// unseal takes the seal away, before the file is written to.
func unseal(path string) error {
	if err := os.Remove(path + sealSuffix); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

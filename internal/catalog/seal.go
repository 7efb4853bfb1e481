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

// SQLite has no checksums for its data: a flipped bit in a row yields another row. So a writer that closes a file
// stores its checksum beside it, and the next process to open the file verifies the checksum. A file that is in use, or
// whose writer was killed, has no checksum.

const (
	sealSuffix  = ".sum"
	sealVersion = 1

	// maxSealed bounds the size of files with a checksum. Reading a file of this size takes about 20 ms.
	maxSealed = 64 << 20
)

// seal is the content of the file with the checksum.
type seal struct {
	Version int    `json:"version"`
	Size    int64  `json:"size"`
	Content string `json:"content"` // CRC-32C
}

// sealError reports that a file changed after its last writer closed it.
type sealError struct{ path string }

func (e *sealError) Error() string { return "it is not as it was left: its checksum is another" }

func isUnsealed(err error) bool {
	_, is := errors.AsType[*sealError](err)
	return is
}

// sealOf returns the current seal of a file. It returns false if the file should have none.
func sealOf(path string) (seal, bool, error) {
	if ahead, err := os.Stat(path + "-wal"); err == nil && ahead.Size() > 0 {
		return seal{}, false, nil // a writer is active
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

// sealFile stores the checksum of a closed file. Without it, the next user trusts the file.
func sealFile(path string) {
	if s, ok, err := sealOf(path); err == nil && ok {
		_ = statefile.Write(path+sealSuffix, s, durable.NoSync)
	}
}

// checkSeal returns a *sealError if a file changed after its last writer closed it. A damaged seal is ignored. Writers
// remove the seal before they write.
func checkSeal(path string) error {
	var left, again seal
	if err := statefile.Read(path+sealSuffix, sealVersion, &left); err != nil {
		return nil
	}
	now, ok, err := sealOf(path)
	if err != nil || !ok || now == left {
		return nil // opening the file reports other faults
	}
	if statefile.Read(path+sealSuffix, sealVersion, &again) != nil || again != left {
		return nil // a writer started meanwhile
	}
	return &sealError{path}
}

// unseal removes the seal, before the file is written.
func unseal(path string) error {
	if err := os.Remove(path + sealSuffix); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

package natsfile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/minio/highwayhash"
)

// known lists the minor versions of nats-server whose files the tests have read. testdata has files of each.
var known = []string{"2.15"}

// Known reports whether this package knows the files of a version of nats-server. Files of another version may be
// healthy however they look: callers must not interpret or change them.
func Known(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return slices.Contains(known, major+"."+minor)
}

// Layout has the format of the hash key and of the block's name. A test changes it to simulate another server.
var Layout = struct{ Key, Block string }{Key: "%s-%d", Block: ".blk"}

// The server keeps each stream in a folder: its description and the description's checksum, and in msgs/ the blocks and
// an index, which saves it from reading them.
const (
	MetaFile  = "meta.inf"
	SumFile   = "meta.sum"
	IndexFile = "index.db"
)

// Folder is the folder that a server creates in its store directory.
const Folder = "jetstream"

// Streams returns the folder of the streams in a server's store, in the default account.
func Streams(store string) string { return filepath.Join(store, Folder, "$G", "streams") }

// Messages returns the folder of a stream's blocks.
func Messages(store, stream string) string { return filepath.Join(Streams(store), stream, "msgs") }

// Folders lists the streams of a store whose creation was completed. A stream without description never acknowledged a
// message.
func Folders(store string) (names []string, err error) {
	folders, err := os.ReadDir(Streams(store))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, f := range folders {
		if _, err := os.Stat(filepath.Join(Streams(store), f.Name(), MetaFile)); f.IsDir() && err == nil {
			names = append(names, f.Name())
		}
	}
	return names, nil
}

// Checksum returns the checksum that the server writes beside the description of a stream.
func Checksum(stream string, meta []byte) string {
	key := sha256.Sum256([]byte(stream))
	sum := highwayhash.Sum64(meta, key[:])
	return hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, sum))
}

// FirstSequence returns the first sequence that a stream can hold.
func FirstSequence(store, stream string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(Streams(store), stream, MetaFile))
	if err != nil {
		return 0, err
	}
	var meta struct {
		First uint64 `json:"first_seq"`
	}
	err = json.Unmarshal(text, &meta)
	return max(meta.First, 1), err
}

// Unindexed returns the size of a stream's blocks if one is younger than its index: the server then reads them all when
// it opens the stream. Otherwise it returns 0.
func Unindexed(store, stream string) (total int64, err error) {
	entries, err := os.ReadDir(Messages(store, stream))
	if err != nil {
		return 0, err
	}
	var index, youngest time.Time
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if e.Name() == IndexFile {
			index = info.ModTime()
		}
		if _, isBlock := number(e.Name()); isBlock {
			total += info.Size()
			if info.ModTime().After(youngest) {
				youngest = info.ModTime()
			}
		}
	}
	if !youngest.After(index) {
		return 0, nil
	}
	return total, nil
}

package storedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/quota"
	"github.com/tallylog/tally/log"
)

// An Image lists the content of a consistent copy of a store: its log up to an offset, and the list of lost records.
// Snapshots and views are left out, as every store rebuilds them. Most indexes are left out too. An index of a full
// stream is included: without it the server reads the stream again and discards the records behind a damaged one in its
// block.
//
// Durable records never change, even while processes append. So the image of a store in use ends with the last durable
// record, if need be in the middle of a block. Repairs of damaged blocks keep their length.
type Image struct {
	Log     string        // identifies the log; a store and all its copies share it
	Durable events.Offset // offset of the last record in the image
	Lost    int           // number of records that are known to be lost
	Servers []string      // versions of nats-server that wrote to the store
	Files   []ImageFile
}

// ImageFile is a file of an Image.
type ImageFile struct {
	Name string // relative to the store's directory, with slashes
	Path string // its first Size bytes are part of the image; "": Text is the whole content
	Size int64
	Text []byte

	// Optional files may be replaced while they are copied. The copy works without them.
	Optional bool
}

// ImageOf lists the files of a store that this process or another one owns. ImageOf calls upto once for each attempt.
// upto returns the last durable offset, as (*log.Log).Durable does; all records acknowledged before the call are in the
// image.
//
// If an unknown version of nats-server wrote to the store, the error is an *UnknownServerError.
func ImageOf(dir string, upto func() (events.Offset, error)) (Image, error) {
	for attempt := 0; ; attempt++ {
		i, err := imageOf(dir, upto)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || attempt == maxImageAttempts {
			return i, err
		}
		time.Sleep(imagePause) // the owner moved a file aside
	}
}

const (
	maxImageAttempts = 20
	imagePause       = 10 * time.Millisecond
)

func imageOf(dir string, upto func() (events.Offset, error)) (Image, error) {
	servers, err := wroteTo(dir)
	if err != nil {
		return Image{}, err
	}
	// The list of lost records is read before the offset. Entries above the durable offset date from the opening of the
	// store, and no new record gets such an offset.
	lost, err := ReadHoles(dir)
	if err != nil {
		return Image{}, fmt.Errorf("embedded: image of %s: %w", dir, err)
	}
	x := &imaging{Image: Image{Lost: len(lost), Servers: servers}, dir: filepath.Clean(dir)}
	if x.Durable, err = upto(); err != nil {
		return Image{}, err
	}
	streams, err := x.streams()
	if err != nil {
		return Image{}, err
	}
	x.given = x.Durable
	if n := len(lost); n > 0 {
		x.given = max(x.given, lost[n-1].Offset)
		if err := x.json(filepath.Join(DamagedDir(x.dir), holesFile), holes{Version: holesVersion, Lost: lost}); err != nil {
			return Image{}, err
		}
	}
	if err := x.kept(); err != nil {
		return Image{}, err
	}
	if err := x.limits(); err != nil {
		return Image{}, err
	}
	x.text(filepath.Join(x.dir, WatermarkFile), WatermarkText(x.given))
	// Clean stays false: the blocks have no index, so the next owner has to check them all.
	err = x.json(filepath.Join(x.dir, markFile), Mark{Version: markVersion, Streams: streams, Durable: x.given, Servers: servers})
	return x.Image, err
}

// wroteTo returns the versions of the servers that wrote to a store. If a version is unknown, it returns an error.
func wroteTo(dir string) ([]string, error) {
	m, err := LoadMark(dir)
	if err != nil {
		return nil, fmt.Errorf("embedded: image of %s: %w", dir, err)
	}
	for _, v := range m.Servers {
		if !natsfile.Known(v) {
			return nil, &UnknownServerError{Dir: dir, Version: v}
		}
	}
	return m.Servers, nil
}

// UnknownServerError reports that a version of nats-server wrote to the store whose files this program does not know.
// The program cannot tell which parts of them are durable.
type UnknownServerError struct {
	Dir     string
	Version string
}

func (e *UnknownServerError) Error() string {
	const format = "embedded: nats-server %s wrote to %s, and this program does not know its files: end all processes that use the store, and copy the directory as it is"
	return fmt.Sprintf(format, e.Version, e.Dir)
}

// Unwrap returns log.ErrUnavailable.
func (e *UnknownServerError) Unwrap() error { return log.ErrUnavailable }

// imaging builds an Image.
type imaging struct {
	Image
	dir   string
	given events.Offset // the highest offset ever assigned
}

// file adds the first bytes of a file.
func (x *imaging) file(path string, size int64) {
	x.Files = append(x.Files, ImageFile{Name: x.name(path), Path: path, Size: size})
}

// text adds a file with a content of its own.
func (x *imaging) text(path string, text []byte) {
	x.Files = append(x.Files, ImageFile{Name: x.name(path), Text: text, Size: int64(len(text))})
}

func (x *imaging) json(path string, v any) error {
	text, err := statefile.Encode(v)
	x.text(path, text)
	return err
}

// name returns a path relative to the store's directory, with slashes.
func (x *imaging) name(path string) string {
	return filepath.ToSlash(strings.TrimPrefix(path, x.dir+string(filepath.Separator)))
}

// limits adds the file of quotas, if it exists.
func (x *imaging) limits() error {
	path := filepath.Join(x.dir, quota.FileName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = quota.Load(x.dir) // damaged limits do not enter a backup
	}
	x.text(path, text)
	return err
}

// streams adds the streams that hold durable records. It leaves out a stream that begins behind the durable offset: the
// stream is empty, or was created meanwhile. If the last stream added is full, the next owner creates another.
func (x *imaging) streams() (names []string, err error) {
	all, err := StreamFolders(x.dir)
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		first, err := natsfile.FirstSequence(x.dir, name)
		if err != nil {
			return nil, err
		}
		if len(names) == 0 || events.Offset(first) <= x.Durable {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("embedded: image of %s: the directory has no log", x.dir)
	}
	for i, name := range names {
		if err := x.description(name, i == 0); err != nil {
			return nil, err
		}
		if err := x.blocks(name, i == len(names)-1); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// description adds a stream's description and its checksum.
func (x *imaging) description(name string, oldest bool) error {
	meta, err := x.meta(name)
	if err != nil {
		return err
	}
	if oldest {
		var made struct{ Created string }
		if err := json.Unmarshal(meta, &made); err != nil {
			return fmt.Errorf("embedded: image of %s: %s: %v", x.dir, name, err)
		}
		x.Log = made.Created
	}
	stream := filepath.Join(natsfile.Streams(x.dir), name)
	x.text(filepath.Join(stream, natsfile.MetaFile), meta)
	x.text(filepath.Join(stream, natsfile.SumFile), []byte(natsfile.Checksum(name, meta)))
	return nil
}

// meta reads a stream's description. The server replaces the description and its checksum one after the other, so they
// may disagree for a moment. If they still disagree after several attempts, they are damaged, and meta returns the copy
// that the next start would restore.
func (x *imaging) meta(name string) ([]byte, error) {
	path := filepath.Join(natsfile.Streams(x.dir), name, natsfile.MetaFile)
	for range maxImageAttempts {
		meta, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		sum, err := os.ReadFile(filepath.Join(filepath.Dir(path), natsfile.SumFile))
		if err == nil && string(sum) == natsfile.Checksum(name, meta) {
			return meta, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		time.Sleep(imagePause)
	}
	meta, err := os.ReadFile(MetaCopy(x.dir, name))
	if err != nil || !json.Valid(meta) {
		return nil, fmt.Errorf("embedded: image of %s: checksum mismatch in %s: it differs from %s, and there is no copy", x.dir, path, natsfile.SumFile)
	}
	return meta, nil
}

// blocks adds the blocks of a stream. The last stream ends with the last durable record.
func (x *imaging) blocks(name string, last bool) error {
	msgs := natsfile.Messages(x.dir, name)
	numbers, err := natsfile.Numbers(msgs)
	if err != nil {
		return err
	}
	end, upto := len(numbers), int64(-1)
	if last {
		if end, upto, err = x.cut(name, numbers); err != nil {
			return err
		}
	}
	whole := end == len(numbers)
	for i, n := range numbers[:end] {
		path := natsfile.Path(msgs, n)
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		size := info.Size()
		if i == end-1 && upto >= 0 {
			whole = whole && size == upto
			size = upto
		}
		x.file(path, size)
	}
	if whole {
		err = x.indexes(name, last)
	}
	return err
}

// indexes adds the indexes of a stream that is complete in the image. They follow the blocks: the server uses an index
// only if it is not older than the blocks.
func (x *imaging) indexes(name string, last bool) error {
	unindexed, err := natsfile.Unindexed(x.dir, name)
	if err != nil {
		return err
	}
	var paths []string
	if unindexed == 0 {
		paths = append(paths, filepath.Join(natsfile.Messages(x.dir, name), natsfile.IndexFile))
	}
	if !last {
		paths = append(paths, filepath.Join(SegmentsDir(x.dir), name+".index"))
	}
	for _, path := range paths {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		x.Files = append(x.Files, ImageFile{Name: x.name(path), Path: path, Size: info.Size(), Optional: true})
	}
	return nil
}

// cut finds the last durable record. It returns the number of blocks in the image and the size of the last one. If the
// record is damaged, cut returns all blocks and the size -1, for the whole block; the next start repairs the damage.
func (x *imaging) cut(name string, numbers []int) (blocks int, upto int64, err error) {
	if x.Durable == 0 {
		return 0, -1, nil
	}
	msgs := natsfile.Messages(x.dir, name)
	for i, n := range slices.Backward(numbers) {
		data, err := natsfile.Load(natsfile.Path(msgs, n), nil)
		if err != nil {
			return 0, 0, err
		}
		records, _ := natsfile.Scan(name, n, data)
		for _, r := range slices.Backward(records) {
			switch at := events.Offset(r.Seq); {
			case at == x.Durable:
				return i + 1, int64(r.End), nil
			case at < x.Durable:
				return len(numbers), -1, nil
			}
		}
	}
	return len(numbers), -1, nil
}

// kept adds the copies of damaged blocks.
func (x *imaging) kept() error {
	entries, err := os.ReadDir(DamagedDir(x.dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || e.Name() == holesFile || e.Name() == holesCopy || durable.IsTemporary(e.Name()) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		x.file(filepath.Join(DamagedDir(x.dir), e.Name()), info.Size())
	}
	return nil
}

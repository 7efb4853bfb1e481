package embedded

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

// An Image is what a copy of a store must have: its log up to an offset, and what is
// known to be lost of it. Snapshots and views are not part of it, as they are made again.
// So are indexes, but those of full streams are part of it: without its index the server
// reads a stream again, and throws away what follows a damaged record in its block.
//
// What is durable is never written to again, whoever appends meanwhile. So an image of a
// store in use ends with the last durable record, in the middle of a block if need be,
// and has nothing that anybody may still change. What is mended while it is copied has
// the same length.
type Image struct {
	Log     string        // which log it is: the same for a store and all its copies
	Durable events.Offset // the image has everything up to here
	Lost    int           // records of it that are known to be lost
	Servers []string      // versions of nats-server that wrote to the store
	Files   []ImageFile
}

// ImageFile is a file of an Image.
type ImageFile struct {
	Name string // below the directory of the store, with slashes
	Path string // where it is: its first Size bytes are part of the image; "": Text is all of it
	Size int64
	Text []byte

	// Optional says that the file may be replaced while it is copied, and can do without.
	Optional bool
}

// ImageOf lists the files of a store that this process or another one owns. upto
// returns up to where the log is durable, as (*log.Log).Durable does, and is called when
// what was acknowledged before must be part of the image.
//
// A *UnknownServerError says that its files are not known to this program.
func ImageOf(dir string, upto func() (events.Offset, error)) (Image, error) {
	for try := 0; ; try++ {
		i, err := imageOf(dir, upto)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || try == imageTries {
			return i, err
		}
		time.Sleep(imagePause) // the owner put something aside
	}
}

const (
	imageTries = 20
	imagePause = 10 * time.Millisecond
)

func imageOf(dir string, upto func() (events.Offset, error)) (Image, error) {
	servers, err := wroteTo(dir)
	if err != nil {
		return Image{}, err
	}
	// What is known to be lost is read before the offset: all that was ever noted of what is
	// not durable then was noted when the store was opened, and no record gets such an offset.
	lost, err := readHoles(dir)
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
		if err := x.json(filepath.Join(damagedDir(x.dir), holesFile), holes{Version: holesVersion, Lost: lost}); err != nil {
			return Image{}, err
		}
	}
	if err := x.kept(); err != nil {
		return Image{}, err
	}
	if err := x.limits(); err != nil {
		return Image{}, err
	}
	x.text(filepath.Join(x.dir, watermarkFile), watermarkText(x.given))
	// Not Clean: the next owner is to look at all blocks, as they come without an index.
	err = x.json(filepath.Join(x.dir, markFile), mark{Version: markVersion, Streams: streams, Durable: x.given, Servers: servers})
	return x.Image, err
}

// wroteTo returns the versions of the servers that wrote to a store, all of them known.
func wroteTo(dir string) ([]string, error) {
	m, err := loadMark(dir)
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

// UnknownServerError says that a version of nats-server wrote to a store of which this
// program does not know the files, so that it cannot tell what of them is durable.
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

// imaging is an Image that is being made.
type imaging struct {
	Image
	dir   string
	given events.Offset // the highest offset that was ever given
}

// file adds the first bytes of a file.
func (x *imaging) file(path string, size int64) {
	x.Files = append(x.Files, ImageFile{Name: x.name(path), Path: path, Size: size})
}

// text adds a file that is to have that text.
func (x *imaging) text(path string, text []byte) {
	x.Files = append(x.Files, ImageFile{Name: x.name(path), Text: text, Size: int64(len(text))})
}

func (x *imaging) json(path string, v any) error {
	text, err := statefile.Encode(v)
	x.text(path, text)
	return err
}

// name returns the name that a file of the store has in an image.
func (x *imaging) name(path string) string {
	return filepath.ToSlash(strings.TrimPrefix(path, x.dir+string(filepath.Separator)))
}

// limits adds the file of the limits, if there is one.
func (x *imaging) limits() error {
	path := filepath.Join(x.dir, quota.FileName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = quota.Load(x.dir) // limits that cannot be believed are not to be restored
	}
	x.text(path, text)
	return err
}

// streams adds the streams that hold what is durable. One that begins behind it was begun
// meanwhile, or is empty; the next owner begins another after the last one here, which may
// be full.
func (x *imaging) streams() (names []string, err error) {
	all, err := streamFolders(x.dir)
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
		return nil, fmt.Errorf("embedded: image of %s: there is no log in it", x.dir)
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

// description adds what describes a stream, and its checksum.
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

// meta reads what describes a stream. The server replaces that and its checksum one after
// the other, so they may not fit for a moment. If that lasts, they are damaged, and the
// copy is taken that a start would put back.
func (x *imaging) meta(name string) ([]byte, error) {
	path := filepath.Join(natsfile.Streams(x.dir), name, natsfile.MetaFile)
	for range imageTries {
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
	meta, err := os.ReadFile(metaCopy(x.dir, name))
	if err != nil || !json.Valid(meta) {
		return nil, fmt.Errorf("embedded: image of %s: %s is damaged: it does not have the checksum in %s, and there is no copy of it", x.dir, path, natsfile.SumFile)
	}
	return meta, nil
}

// blocks adds the blocks of a stream: of the last one, up to the last durable record.
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

// indexes adds those of a stream that is whole in the image, behind its blocks: the server
// takes an index that is not older than they are.
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
		paths = append(paths, filepath.Join(segmentsDir(x.dir), name+".index"))
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

// cut finds the last durable record: it returns how many of the blocks are part of the
// image, and where in the last of them it ends. If the record is damaged, all there is is
// part of it (-1), and the next start deals with that.
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

// kept adds the damaged blocks that were kept aside.
func (x *imaging) kept() error {
	entries, err := os.ReadDir(damagedDir(x.dir))
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
		x.file(filepath.Join(damagedDir(x.dir), e.Name()), info.Size())
	}
	return nil
}

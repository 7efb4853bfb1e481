package tail

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

const (
	smallContent = 64 << 20 // content up to this size is read regardless of its size on disk
	maxInflation = 200      // above that, maximum bytes of content per byte on disk
	maxWindow    = 32 << 20 // maximum decoder window of a compressed file
)

// fileContent is the content of a file; for a compressed file it is decompressed.
type fileContent struct {
	io.ReaderAt
	info  fs.FileInfo
	meta  meta
	size  int64
	born  int64 // creation time of the file; 0: unknown
	close func()
}

// onDisk returns the size of a file on disk. It returns false if the system does not report it.
func (c *fileContent) onDisk() (int64, bool) { return onDisk(c.info) }

// errSwapped reports that a file was replaced while it was opened.
var errSwapped = errors.New("replaced while it was opened")

// openFile opens a regular file below a root for reading. The name must be that of the file itself before and after: no
// symbolic link is followed, even if it is created during the call.
func (t *Tailer) openFile(k fileKey) (*os.File, fs.FileInfo, error) {
	if k.root.dir == nil {
		return nil, nil, fs.ErrNotExist
	}
	if t.beforeOpen != nil {
		if err := t.beforeOpen(k.root.full(k.rel)); err != nil {
			return nil, nil, err
		}
	}
	f, err := k.root.dir.OpenFile(filepath.FromSlash(k.rel), openFlags, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errSwapped
	}
	if err == nil {
		var named fs.FileInfo
		if named, err = os.Lstat(k.root.full(k.rel)); err == nil && !os.SameFile(info, named) {
			err = errSwapped
		}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// openContent opens the content of a file.
func (t *Tailer) openContent(k fileKey, packed bool) (*fileContent, error) {
	f, info, err := t.openFile(k)
	if err != nil {
		return nil, err
	}
	if !packed {
		return &fileContent{f, info, metaOf(info), info.Size(), bornOf(f), func() { f.Close() }}, nil
	}
	in, err := inflate(f, info)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &fileContent{in, info, metaOf(info), in.size, bornOf(f), in.close}, nil
}

// tooSparse returns an error for a file whose content is much larger than its size on disk.
func (t *Tailer) tooSparse(f *file, c *fileContent) error {
	has, ok := c.onDisk()
	if ok && c.size > smallContent+maxInflation*has {
		return fmt.Errorf("%s: the content has %d bytes but takes only %d on disk: sparse files are not read", f.root.full(f.rel), c.size, has)
	}
	return nil
}

// An inflater reads the content of a compressed file at any position, efficiently in ascending order. Its memory is a
// buffer of recent content and the decoder's window.
type inflater struct {
	file *os.File
	dec  *zstd.Decoder
	head []byte // the first span
	from int64  // position of buf in the content
	buf  []byte
	size int64
}

// inflate reads a compressed file once, to verify it and the bound of its decompressed size.
func inflate(f *os.File, info fs.FileInfo) (*inflater, error) {
	in := &inflater{file: f}
	if err := in.rewind(); err != nil {
		return nil, err
	}
	limit := smallContent + maxInflation*info.Size()
	n, err := io.Copy(io.Discard, io.LimitReader(in.dec, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("%d compressed bytes expand to more than %d: the file is not read", info.Size(), limit)
	}
	if err == nil {
		in.size = n
		err = in.rewind()
	}
	if err != nil {
		in.dec.Close()
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return in, nil
}

// rewind returns to the beginning.
func (in *inflater) rewind() (err error) {
	if _, err = in.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in.from, in.buf = 0, in.buf[:0]
	if in.dec != nil {
		return in.dec.Reset(in.file)
	}
	in.dec, err = zstd.NewReader(in.file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	return err
}

func (in *inflater) close() {
	if in != nil {
		in.dec.Close()
		in.file.Close()
	}
}

// ReadAt implements io.ReaderAt.
func (in *inflater) ReadAt(p []byte, at int64) (n int, err error) {
	if at+int64(len(p)) <= int64(len(in.head)) {
		return copy(p, in.head[at:]), nil
	}
	if at < in.from {
		if err := in.rewind(); err != nil {
			return 0, err
		}
	}
	for n < len(p) {
		if skip := at + int64(n) - in.from; skip < int64(len(in.buf)) {
			n += copy(p[n:], in.buf[skip:])
			continue
		}
		if err := in.more(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// more decompresses more content. It drops old content from the buffer.
func (in *inflater) more() error {
	if len(in.buf) >= 4*fileBytes {
		drop := len(in.buf) - 2*fileBytes
		in.buf = in.buf[:copy(in.buf, in.buf[drop:])]
		in.from += int64(drop)
	}
	was := len(in.buf)
	in.buf = append(in.buf, make([]byte, 64<<10)...)
	n, err := in.dec.Read(in.buf[was:])
	in.buf = in.buf[:was+n]
	if in.from == 0 && was < span {
		in.head = append(in.head[:0], in.buf[:min(span, len(in.buf))]...)
	}
	if n > 0 {
		return nil
	}
	return err
}

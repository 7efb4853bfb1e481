package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/tallylog/tally/internal/disk/filename"
	"github.com/tallylog/tally/internal/layouts"
)

// Storage keeps files in a bucket. Its methods are safe for concurrent use. If ctx has no deadline, a call waits for
// each answer as long as its JetStream does.
type Storage struct {
	js      jetstream.JetStream
	bucket  string
	objects jetstream.ObjectStore
	stream  jetstream.Stream
}

var (
	_ layouts.Watcher = (*Storage)(nil)
	_ layouts.Walker  = (*Storage)(nil)
)

// Open opens a bucket, and creates it if it is missing.
func Open(ctx context.Context, js jetstream.JetStream, bucket string) (*Storage, error) {
	objects, err := js.ObjectStore(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		objects, err = js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: bucket})
	}
	if err != nil {
		return nil, fmt.Errorf("layouts/bucket: %s: %w", bucket, err)
	}
	stream, err := js.Stream(ctx, "OBJ_"+bucket)
	if err != nil {
		return nil, fmt.Errorf("layouts/bucket: %s: %w", bucket, err)
	}
	return &Storage{js, bucket, objects, stream}, nil
}

// Sizes in bytes.
const (
	pieceSize = 128 << 10 // the default of all clients
	wholeSize = 1 << 20   // up to which Read reads an object as a whole
)

// modeKey is the member of Metadata with the permission bits.
const modeKey = "mode"

// version is the newest object of a name with its sequence number. If the name was never used, ObjectInfo is nil and
// at is 0.
type version struct {
	*jetstream.ObjectInfo
	at uint64
}

// isThere reports whether the object exists.
func (v version) isThere() bool { return v.ObjectInfo != nil && !v.Deleted }

// isLink reports whether the object is a link to another one.
func (v version) isLink() bool { return v.Opts != nil && v.Opts.Link != nil }

func (v version) describe(name string) layouts.FileInfo {
	e := layouts.FileInfo{Name: name, Size: int64(v.Size), Mode: layouts.FileMode(0), ModTime: v.ModTime, Version: v.NUID}
	if bits, err := strconv.ParseUint(v.Metadata[modeKey], 8, 32); err == nil {
		e.Mode = fs.FileMode(bits) & fs.ModePerm
	}
	if v.isLink() {
		e = layouts.FileInfo{Name: name, Size: -1}
	}
	return e
}

func (s *Storage) metaSubject(name string) string {
	return "$O." + s.bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

func (s *Storage) piecesSubject(id string) string { return "$O." + s.bucket + ".C." + id }

// fault adds the operation and the path to an error.
func fault(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, layouts.ErrNotFile) {
		err = fmt.Errorf("layouts/bucket: %w", err)
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// newest returns the newest version at a path.
func (s *Storage) newest(ctx context.Context, path string) (version, error) {
	if err := layouts.CheckPath(path); err != nil {
		return version{}, err
	}
	m, err := s.stream.GetLastMsgForSubject(ctx, s.metaSubject(filename.Text(path)))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return version{}, nil
	}
	if err != nil {
		return version{}, err
	}
	v := version{&jetstream.ObjectInfo{}, m.Sequence}
	if err := json.Unmarshal(m.Data, v.ObjectInfo); err != nil {
		return version{}, err
	}
	v.ModTime = m.Time
	return v, nil
}

// file returns the newest version of an existing file.
func (s *Storage) file(ctx context.Context, path string) (version, error) {
	v, err := s.newest(ctx, path)
	switch {
	case err != nil:
		return version{}, err
	case !v.isThere():
		return version{}, fs.ErrNotExist
	case v.isLink():
		return version{}, layouts.ErrNotFile
	}
	return v, nil
}

// refused returns a *layouts.PathError as it is, and adds operation and path to any other error.
func refused(op, path string, err error) error {
	if _, ok := errors.AsType[*layouts.PathError](err); ok {
		return err
	}
	return fault(op, path, err)
}

// Stat implements Storage.
func (s *Storage) Stat(ctx context.Context, path string) (layouts.FileInfo, error) {
	v, err := s.newest(ctx, path)
	if err == nil && !v.isThere() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return layouts.FileInfo{}, refused("stat", path, err)
	}
	return v.describe(path[strings.LastIndexByte(path, '/')+1:]), nil
}

// errReplaced reports that the pieces of a version were deleted.
var errReplaced = errors.New("the object was replaced while it was read")

// Read implements Storage.
func (s *Storage) Read(ctx context.Context, path string) (io.ReadCloser, error) {
	for {
		v, err := s.file(ctx, path)
		if err != nil {
			return nil, refused("read", path, err)
		}
		r := s.pieces(ctx, v)
		if v.Size > wholeSize {
			return io.NopCloser(r), nil
		}
		data, err := io.ReadAll(r)
		if err == nil {
			return io.NopCloser(bytes.NewReader(data)), nil
		}
		if now, nowErr := s.newest(ctx, path); !errors.Is(err, errReplaced) || nowErr != nil || now.at == v.at {
			return nil, fault("read", path, err)
		}
	}
}

// reader reads the pieces of an object, in order.
type reader struct {
	next   func() (*jetstream.RawStreamMsg, error)
	left   int // number of pieces
	data   []byte
	sum    hash.Hash
	digest string
}

func (s *Storage) pieces(ctx context.Context, v version) *reader {
	at, subject := uint64(1), s.piecesSubject(v.NUID)
	return &reader{left: int(v.Chunks), sum: sha256.New(), digest: v.Digest, next: func() (*jetstream.RawStreamMsg, error) {
		m, err := s.stream.GetMsg(ctx, at, jetstream.WithGetMsgSubject(subject))
		if err == nil {
			at = m.Sequence + 1
		}
		return m, err
	}}
}

// Read implements io.Reader. It returns io.EOF only if the checksum is right.
func (r *reader) Read(p []byte) (int, error) {
	for len(r.data) == 0 {
		if r.left == 0 {
			if digest := jetstream.GetObjectDigestValue(r.sum); r.digest != "" && strings.TrimRight(digest, "=") != strings.TrimRight(r.digest, "=") {
				return 0, fmt.Errorf("layouts/bucket: %w", jetstream.ErrDigestMismatch)
			}
			return 0, io.EOF
		}
		m, err := r.next()
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			err = errReplaced
		}
		if err != nil {
			return 0, fmt.Errorf("layouts/bucket: %w", err)
		}
		r.left--
		r.data = m.Data
		r.sum.Write(m.Data)
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

// writer stores pieces.
type writer struct {
	store func(piece []byte) error
	info  *jetstream.ObjectInfo
	data  []byte
	sum   hash.Hash
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		k := min(len(p), pieceSize-len(w.data))
		w.data, p, n = append(w.data, p[:k]...), p[k:], n+k
		if len(w.data) == pieceSize {
			if err := w.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (w *writer) flush() error {
	if len(w.data) == 0 {
		return nil
	}
	if err := w.store(w.data); err != nil {
		return err
	}
	w.sum.Write(w.data)
	w.info.Chunks++
	w.info.Size += uint64(len(w.data))
	w.data = w.data[:0]
	return nil
}

// upload stores the pieces of a new version. The version has no name yet.
func (s *Storage) upload(ctx context.Context, path string, mode fs.FileMode, content func(io.Writer) error) (*jetstream.ObjectInfo, error) {
	info := &jetstream.ObjectInfo{Bucket: s.bucket, NUID: nuid.Next()}
	info.Name, info.Opts = filename.Text(path), &jetstream.ObjectMetaOptions{ChunkSize: pieceSize}
	if mode.Perm() != layouts.FileMode(0) {
		info.Metadata = map[string]string{modeKey: strconv.FormatUint(uint64(mode.Perm()), 8)}
	}
	subject := s.piecesSubject(info.NUID)
	w := &writer{info: info, sum: sha256.New(), store: func(piece []byte) error {
		_, err := s.js.Publish(ctx, subject, piece)
		return err
	}}
	err := content(w)
	if err == nil {
		err = w.flush()
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, s.discard(ctx, info.NUID))
	}
	info.Digest = jetstream.GetObjectDigestValue(w.sum)
	return info, nil
}

// discard deletes the pieces of a version that no object refers to.
func (s *Storage) discard(ctx context.Context, id string) error {
	return s.stream.Purge(context.WithoutCancel(ctx), jetstream.WithPurgeSubject(s.piecesSubject(id)))
}

// name stores the name of a version in place of the old one: the commit point. Before it the old version exists with
// all its pieces, after it the new one. If the old version is no longer the newest, name returns errMoved.
func (s *Storage) name(ctx context.Context, info *jetstream.ObjectInfo, old version) error {
	data, err := json.Marshal(info)
	if err != nil {
		return err
	}
	m := nats.NewMsg(s.metaSubject(info.Name))
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	m.Data = data
	_, err = s.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(old.at))
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return errMoved
	}
	return err
}

var errMoved = errors.New("another writer changed the object")

// replace stores the name of a version in place of old, and deletes the pieces of old. If the server did not answer,
// either version may be current, so both keep their pieces.
func (s *Storage) replace(ctx context.Context, info *jetstream.ObjectInfo, old version) error {
	if err := s.name(ctx, info, old); err != nil {
		return err
	}
	if old.isThere() && old.NUID != "" {
		_ = s.discard(ctx, old.NUID) // after an error, the pieces only take space
	}
	return nil
}

// Write implements Storage.
func (s *Storage) Write(ctx context.Context, path string, mode fs.FileMode, content func(io.Writer) error) error {
	old, err := s.newest(ctx, path)
	if err != nil {
		return refused("write", path, err)
	}
	info, err := s.upload(ctx, path, mode, content)
	if err != nil {
		return err
	}
	for {
		if err = s.replace(ctx, info, old); !errors.Is(err, errMoved) {
			return fault("write", path, err)
		}
		if old, err = s.newest(ctx, path); err != nil {
			return errors.Join(fault("write", path, err), s.discard(ctx, info.NUID))
		}
	}
}

// Append implements Storage. It writes the whole file again.
func (s *Storage) Append(ctx context.Context, path string, content []byte) error {
	for {
		old, err := s.newest(ctx, path)
		if err == nil && old.isThere() && old.isLink() {
			err = layouts.ErrNotFile
		}
		if err != nil {
			return refused("append", path, err)
		}
		mode := layouts.FileMode(0)
		if old.isThere() {
			mode = old.describe("").Mode
		}
		info, err := s.upload(ctx, path, mode, func(w io.Writer) error {
			if old.isThere() {
				if _, err := io.Copy(w, s.pieces(ctx, old)); err != nil {
					return err
				}
			}
			_, err := w.Write(content)
			return err
		})
		if errors.Is(err, errReplaced) {
			continue
		}
		if err == nil {
			err = s.replace(ctx, info, old)
		}
		if !errors.Is(err, errMoved) {
			return fault("append", path, err)
		}
		if err := s.discard(ctx, info.NUID); err != nil {
			return fault("append", path, err)
		}
	}
}

// Delete implements Storage. It removes a link, not its target.
func (s *Storage) Delete(ctx context.Context, path string) error {
	for {
		old, err := s.newest(ctx, path)
		if err == nil && !old.isThere() {
			err = fs.ErrNotExist
		}
		if err != nil {
			return refused("delete", path, err)
		}
		gone := *old.ObjectInfo
		gone.Deleted, gone.Size, gone.Chunks, gone.Digest = true, 0, 0, ""
		err = s.replace(ctx, &gone, old)
		if err == nil && layouts.IsTemporary(path) { // no file has this name again, and watchers do not report it
			_ = s.stream.Purge(context.WithoutCancel(ctx), jetstream.WithPurgeSubject(s.metaSubject(gone.Name))) // after an error, the message only takes space
		}
		if !errors.Is(err, errMoved) {
			return fault("delete", path, err)
		}
	}
}

// List implements Storage.
func (s *Storage) List(ctx context.Context, folder string) ([]layouts.FileInfo, error) {
	return layouts.ListFound(folder, s.Walk(ctx, folder))
}

// Walk implements layouts.Walker.
func (s *Storage) Walk(ctx context.Context, folder string) iter.Seq2[layouts.Found, error] {
	return func(yield func(layouts.Found, error) bool) {
		prefix := ""
		if folder != "" {
			if err := layouts.CheckPath(folder); err != nil {
				yield(layouts.Found{}, err)
				return
			}
			prefix = folder + "/"
		}
		list, err := s.objects.List(ctx)
		if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
			yield(layouts.Found{}, fault("list", folder, err))
			return
		}
		newest := make(map[string]*jetstream.ObjectInfo, len(list)) // an object that is written meanwhile comes twice
		for _, info := range list {
			newest[info.Name] = info
		}
		for name, info := range newest {
			f := found(name)
			if !strings.HasPrefix(f.Path, prefix) {
				continue
			}
			if f.Size == 0 {
				f.FileInfo = version{ObjectInfo: info}.describe(f.Name)
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}

// Watch implements layouts.Watcher. After a reconnect it goes on where it was.
func (s *Storage) Watch(ctx context.Context, ready func(), changed func(path string)) error {
	w, err := s.objects.Watch(ctx, jetstream.UpdatesOnly())
	if err != nil {
		return fmt.Errorf("layouts/bucket: watch: %w", err)
	}
	defer w.Stop() //nolint:errcheck // the watch is over
	if ready != nil {
		ready()
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case info, ok := <-w.Updates():
			if !ok {
				return fmt.Errorf("layouts/bucket: watch: %w", nats.ErrConnectionClosed)
			}
			if info == nil {
				continue
			}
			if f := found(info.Name); f.Size == 0 && !layouts.IsTemporary(f.Path) {
				changed(f.Path)
			}
		}
	}
}

package tree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/log"
)

// linger is how long a displaced file is kept. An editor that opened it before may still write to it.
const linger = 2 * time.Second

// nothing is the SHA-256 of an empty file.
var nothing = hex.EncodeToString(sha256.New().Sum(nil))

// displaced is a file that was replaced or removed, and now has a temporary name.
type displaced struct {
	path  string // current path
	from  string
	entry events.Subject
	base  events.Offset // offset whose content it had before a user changed it
	sums  []string      // hashes of known contents: written by the tree, or kept
	due   time.Time     // time of the final check
	wait  time.Duration // delay of the last retry, if it could not be kept
}

// came handles a file that was displaced by a new file or by a removal. If its content is neither that of the tree's
// previous file nor of the new one, the content is kept. The caller holds mu.
func (t *Tree) came(ctx context.Context, old, from string, sub events.Subject, have *fileRecord, now wantedFile) {
	d := &displaced{path: old, from: from, entry: sub, sums: append([]string{now.sum}, t.tried[from]...), due: t.c.Now().Add(linger)}
	if have != nil {
		d.base, d.sums = have.at, append(d.sums, have.sum)
	}
	if e := t.edits[from]; e != nil && e.dropped {
		d.sums = append(d.sums, e.sum)
	}
	if now.grew && have != nil { // a part of the growth may have been written there
		e, err := t.c.Storage.Stat(ctx, old)
		is := err == nil && e.Size > have.size
		if is {
			is, err = t.begins(ctx, now, old)
		}
		if is && err == nil {
			if sum, err := t.sumOf(ctx, old); err == nil {
				d.sums = append(d.sums, sum)
			}
		}
	}
	t.out[old] = d
	t.changed.displaced(old)
	if err := t.recheck(ctx, d, now); err != nil {
		t.c.Logger.Warn("an edit cannot be stored; it is kept beside its file until it can", "tree", t.c.Name, "path", old, "err", err)
	}
	t.stir()
}

// recheck keeps the content of a displaced file, unless it is known. The entry's file now is in is, which may be the zero
// value. The caller holds mu.
func (t *Tree) recheck(ctx context.Context, d *displaced, is wantedFile) error {
	sum, err := t.sumOf(ctx, d.path)
	if errors.Is(err, fs.ErrNotExist) {
		d.due = time.Time{}
		return nil
	}
	if err != nil || slices.Contains(d.sums, sum) || sum == nothing { // empty: a program is about to write to it
		return err
	}
	old, err := t.wasShown(ctx, d, sum, is)
	if err != nil {
		return err
	}
	if old {
		d.sums = append(d.sums, sum)
		t.changed.displaced(d.path)
		return nil
	}
	if err := t.keep(ctx, keeping{path: d.from, entry: d.entry, base: d.base, sum: sum, reason: "it was written while the log changed it", read: func() (io.ReadCloser, error) { return t.c.Storage.Read(ctx, d.path) }}); err != nil {
		return err
	}
	d.sums, d.due = append(d.sums, sum), t.c.Now().Add(linger)
	t.changed.displaced(d.path)
	return nil
}

// wasShown reports whether a displaced file that was not in the manifest has content that the log once had at its path.
// After an error this is not known yet.
func (t *Tree) wasShown(ctx context.Context, d *displaced, sum string, is wantedFile) (bool, error) {
	if d.base != 0 {
		return false, nil
	}
	if d.entry.ID == "" && !isCopy(d.from) {
		sub, ok, err := t.c.Layout.EntryAt(ctx, t.c.Target, t.c.Root, d.from)
		if err != nil || !ok {
			return false, passing(ctx, err)
		}
		d.entry = sub
	}
	return t.isOld(ctx, d.entry, d.path, d.from, sum, is)
}

// passing returns err if a later call may succeed, and nil otherwise. The answer of an interrupted call is unknown: it must
// not count as a no.
func passing(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, log.ErrUnavailable) {
		return err
	}
	return nil
}

// drop removes displaced files whose time is over. The caller holds mu.
func (t *Tree) drop(ctx context.Context, now time.Time) {
	for p, d := range t.out {
		if d.due.After(now) {
			continue
		}
		known := len(d.sums)
		if err := t.recheck(ctx, d, wantedFile{}); err != nil || len(d.sums) != known {
			if err != nil && ctx.Err() == nil {
				t.skipped[p] = err.Error()
				d.wait = min(max(2*d.wait, linger), auditEvery)
				d.due = now.Add(d.wait)
			}
			continue
		}
		reached("before unlink")
		if err := t.c.Storage.Delete(ctx, p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.due = now.Add(linger)
			continue
		}
		delete(t.out, p)
		delete(t.skipped, p)
		t.changed.displaced(p)
		t.tidy(ctx, []string{p})
	}
}

// sumOf returns the SHA-256 of a file.
func (t *Tree) sumOf(ctx context.Context, p string) (string, error) {
	r, err := t.c.Storage.Read(ctx, p)
	if err != nil {
		return "", err
	}
	defer r.Close()
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// leftover handles a temporary file that a crash has left: an incomplete new file, or a displaced one. Unknown content
// is kept. The caller holds mu.
func (t *Tree) leftover(ctx context.Context, p string) error {
	if _, meant := t.intents[p]; t.out[p] != nil || t.files[p] != nil || meant {
		return nil // or a regular file has this name
	}
	dir, name := path.Split(p)
	name, _, _ = strings.Cut(strings.TrimPrefix(name, "."), layouts.TemporaryMark)
	from := dir + name
	sum, err := t.sumOf(ctx, p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	have, meant := t.files[from], t.intents[from]
	d := &displaced{path: p, from: from, due: t.c.Now()}
	if have != nil {
		d.entry, d.base = have.entry, have.at
	}
	d.sums = append([]string{meant.sum}, t.tried[from]...)
	if have != nil {
		d.sums = append(d.sums, have.sum)
	}
	if !slices.Contains(d.sums, sum) {
		part, err := t.isPart(ctx, p, from, meant)
		if err != nil {
			return err
		}
		if part {
			d.sums = append(d.sums, sum)
		}
	}
	t.out[p] = d
	t.changed.displaced(p)
	return nil
}

// isPart reports whether a file is the beginning of an intended new file.
func (t *Tree) isPart(ctx context.Context, p, from string, meant intent) (bool, error) {
	if meant.sum == "" || t.entries[meant.entry] == nil {
		return false, nil
	}
	files, err := t.render(ctx, meant.entry, meant.at)
	if err != nil {
		return false, passing(ctx, err)
	}
	for _, w := range files {
		if w.Path == from {
			is, err := t.begins(ctx, w, p)
			return is, passing(ctx, err)
		}
	}
	return false, nil
}

// begins reports whether the content of w begins with the content of a file.
func (t *Tree) begins(ctx context.Context, w wantedFile, p string) (bool, error) {
	r, err := t.c.Storage.Read(ctx, p)
	if err != nil {
		return false, err
	}
	defer r.Close()
	c := &beginning{r: r}
	if err := w.content(c); err != nil && !errors.Is(err, errDiffers) {
		return false, err
	}
	if c.differs {
		return false, nil
	}
	n, err := r.Read(make([]byte, 1))
	return n == 0 && (c.over || errors.Is(err, io.EOF)), nil
}

var errDiffers = errors.New("differs")

// beginning compares written data with a file that may end earlier.
type beginning struct {
	r             io.Reader
	over, differs bool
	buf           []byte
}

func (b *beginning) Write(p []byte) (int, error) {
	if b.over {
		return len(p), nil
	}
	if len(b.buf) < len(p) {
		b.buf = make([]byte, len(p))
	}
	n, err := io.ReadFull(b.r, b.buf[:len(p)])
	if string(b.buf[:n]) != string(p[:n]) {
		b.differs = true
		return 0, errDiffers
	}
	b.over = err != nil
	return len(p), nil
}

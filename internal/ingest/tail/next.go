package tail

import (
	"bufio"
	"context"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// lookEvery is the number of steps between examinations of names while live files are read.
const lookEvery = 64

// A queue holds files that may have lines to deliver.
type queue []*file

// ready holds possible deliveries.
type ready struct {
	notices        []*Batch
	live, backfill queue
	alone          *file // the first of live, if its next line is so long that it waits for all acknowledgements
	bytes          int64 // delivered but unacknowledged
}

// Next returns the next batch. Recently changed files come first, one batch of each in turn. It waits until there is a
// batch. If the context ends, it returns the context's error; after Close, ErrClosed; with Options.Once, io.EOF after
// all deliveries.
func (t *Tailer) Next(ctx context.Context) (*Batch, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if t.closed {
			return nil, ErrClosed
		}
		b, isIdle := t.step()
		switch {
		case b != nil:
			return b, nil
		case !isIdle:
		case t.o.Once && t.isOver():
			return nil, io.EOF
		default:
			t.wait(ctx)
		}
	}
}

// step does a small part of the work and returns a delivery, if any. isIdle means that there is no work until an event.
func (t *Tailer) step() (b *Batch, isIdle bool) {
	t.takeAcks()
	t.takeKicks()
	t.takeEvents()
	now := t.o.Now()
	t.due(now)
	t.saveIfDue(now)
	if b := t.notice(); b != nil {
		return b, false
	}
	if t.turns++; t.turns%lookEvery == 0 && (t.lookAround() || t.letOn()) { // needed if live files never end
		return nil, false
	}
	if b := t.deliver(&t.ready.live); b != nil {
		return b, false
	}
	if t.lookAround() || t.letOn() {
		return nil, false
	}
	if t.o.Once {
		t.takeTorn()
		t.tellGone()
	}
	if b := t.deliver(&t.ready.backfill); b != nil {
		return b, false
	}
	return nil, len(t.ready.notices) == 0 && (len(t.ready.live) == 0 && len(t.ready.backfill) == 0 || t.isHeld())
}

// isHeld reports whether deliveries must wait for acknowledgements.
func (t *Tailer) isHeld() bool {
	return t.ready.bytes >= totalBytes || t.ready.alone != nil && t.ready.bytes > 0
}

// isOver reports whether all existing content was delivered. No file waits for an acknowledgement to be read further,
// and no missing file is unreported.
func (t *Tailer) isOver() bool {
	if len(t.ready.live)+len(t.ready.backfill)+len(t.torn)+len(t.again)+len(t.behind) > 0 {
		return false
	}
	for _, d := range t.folders {
		for _, f := range d.files {
			if f.parked {
				return false
			}
		}
	}
	return true
}

func (t *Tailer) notice() *Batch {
	if len(t.ready.notices) == 0 {
		return nil
	}
	b := t.ready.notices[0]
	t.ready.notices[0] = nil
	t.ready.notices = t.ready.notices[1:]
	if b.file != nil {
		t.give(b.file, b)
	}
	return b
}

// tell queues a batch without lines.
func (t *Tailer) tell(f *file, b *Batch) {
	b.file = f
	t.ready.notices = append(t.ready.notices, b)
}

// enqueue queues a file for reading.
func (t *Tailer) enqueue(f *file, isLive bool) {
	f.live = f.live || isLive
	q := &t.ready.backfill
	if f.live {
		q = &t.ready.live
	}
	if f.queue != q {
		f.queue = q
		*q = append(*q, f)
	}
}

// deliver reads files of a queue until one has a batch, at most step files.
func (t *Tailer) deliver(q *queue) *Batch {
	for range min(len(*q), step) {
		if t.isHeld() {
			return nil
		}
		f := (*q)[0]
		(*q)[0] = nil
		*q = (*q)[1:]
		if t.ready.alone == f {
			t.ready.alone = nil
		}
		if f.queue != q || f.folder == nil {
			continue // it is in the other queue, or was dropped
		}
		f.queue = nil
		if f.outLines >= fileLines || f.outBytes >= fileBytes {
			f.parked = true
			continue
		}
		if t.isBehind(f) {
			t.behind[f] = true
			continue
		}
		if b := t.readFile(f); b != nil {
			return b
		}
	}
	return nil
}

// takeKicks moves kicked files to the front.
func (t *Tailer) takeKicks() {
	t.mail.Lock()
	kicks, skips := t.mail.kicks, t.mail.skips
	t.mail.kicks, t.mail.skips = nil, nil
	t.mail.Unlock()
	t.takeSkips(skips)
	for _, name := range kicks {
		for _, r := range t.roots {
			if rel, ok := strings.CutPrefix(name, r.path+string(filepath.Separator)); ok {
				t.kick(fileKey{r, filepath.ToSlash(filepath.Clean(rel))})
			}
		}
	}
}

// kick examines a file and reads it first. If its folder is unknown, the folder is listed first.
func (t *Tailer) kick(k fileKey) {
	d := t.folderOf(k)
	if d == nil {
		return
	}
	t.lookAt(k)
	f := d.files[filepath.Base(k.rel)]
	if f == nil || f.parked {
		return
	}
	f.live, f.queue = true, &t.ready.live
	t.ready.live = append(queue{f}, t.ready.live...)
}

// folderOf returns the folder of a name. It examines unknown folders on the way.
func (t *Tailer) folderOf(k fileKey) *folderState {
	var known string
	for _, part := range strings.Split(k.rel, "/") {
		if part == ".." {
			return nil
		}
	}
	d := t.folders[fileKey{k.root, "."}]
	for at, c := range k.rel {
		if c != '/' || d == nil {
			continue
		}
		known = k.rel[:at]
		if t.folders[fileKey{k.root, known}] == nil {
			t.lookAt(fileKey{k.root, known})
		}
		d = t.folders[fileKey{k.root, known}]
	}
	return d
}

// gather is the time for which continuous events are collected: processing each line at once costs more.
const gather = 5 * time.Millisecond

// wait waits for an event or a due time. The caller holds mu, which is released meanwhile.
func (t *Tailer) wait(ctx context.Context) {
	timer := time.NewTimer(t.pause())
	defer timer.Stop()
	events, errs := t.events()
	rest := gather - time.Since(t.woke)
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.woke = time.Now()
	}()
	if rest > 0 && events != nil {
		time.Sleep(rest)
	}
	select {
	case <-ctx.Done():
	case <-t.mail.wake:
	case <-timer.C:
	case e, ok := <-events:
		t.mu.Lock()
		defer t.mu.Unlock()
		if ok && !t.closed {
			t.onEvent(e)
		}
	case err, ok := <-errs:
		t.mu.Lock()
		defer t.mu.Unlock()
		if ok && !t.closed {
			t.onWatchError(err)
		}
	}
}

// pause returns the time until the next due work.
func (t *Tailer) pause() time.Duration {
	a := &t.agenda
	next := a.folders
	if a.all.Before(next) {
		next = a.all
	}
	if t.unwatched > 0 && a.poll.Before(next) {
		next = a.poll
	}
	if len(t.torn)+len(t.absent)+len(t.again) > 0 && a.second.Before(next) {
		next = a.second
	}
	if len(t.dirty) > 0 && t.journal != nil && t.journal.due.Before(next) {
		next = t.journal.due
	}
	return max(next.Sub(t.o.Now()), time.Millisecond)
}

// maxHead bounds the result of Head.
const maxHead = 1 << 20

// Head returns the first line of a file with its end, up to 1 MiB. If the file is missing or compressed, it returns
// nil.
func (t *Tailer) Head(f File) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.roots {
		if r.id == f.Root {
			return t.head(fileKey{r, f.Rel}, f.Packed)
		}
	}
	return nil
}

func (t *Tailer) head(k fileKey, packed bool) []byte {
	if packed {
		return nil
	}
	f, _, err := t.openFile(k)
	if err != nil {
		return nil
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, maxHead)).ReadBytes('\n')
	if err != nil && err != io.EOF {
		return nil
	}
	return line
}

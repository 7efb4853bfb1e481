package log

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/nats/segindex"
)

// ErrNeedsServer reports that a log of OpenFiles cannot answer from the files: open the store on its server.
var ErrNeedsServer = errors.New("only the store's server can answer")

// OpenFiles opens the log of a store that no process has open, and reads the server's files without a server.
// c.Host.Segments names the folders of blocks and of indexes. streams are the streams of the log, oldest first, and last
// is the offset of its last record. The log takes no appends, and ends at last even if a process appends meanwhile.
//
// OpenFiles checks the newest stream, and the newest vet bytes of the log. If they are damaged or incomplete, or a full
// stream has no index, the error is ErrNeedsServer. Reads report damage in the other blocks.
func OpenFiles(ctx context.Context, streams []string, last events.Offset, vet int64, c Config) (*Log, error) {
	c = c.withDefaults()
	f := &files{dir: c.Host.Segments.Blocks, last: last, now: c.Now, table: table{seed: maphash.MakeSeed()}}
	err := f.open(c.Stream, streams, c.Host.Segments.Dir, vet)
	if err == nil {
		var l *Log
		if l, err = OpenOn(ctx, f, c); err == nil {
			return l, nil
		}
	}
	return nil, errors.Join(err, f.Close())
}

// files is the Backend on the server's files. Nothing in it changes once it is open. Blocks only grow while processes
// append, so it needs no lock.
type files struct {
	dir  string // of the streams
	line *line
	last events.Offset
	now  func() time.Time
	table
}

// table locates the records of the newest segment, one after the other. It takes 12 bytes a record.
type table struct {
	seed     maphash.Seed
	first    events.Offset // of the first record
	subjects []uint64      // hashes
	at       []uint32      // positions in their blocks
	blocks   []blockOf     // in their order
}

// blockOf is a block and its first record.
type blockOf struct{ number, begin int }

// open loads the segments, and checks the newest blocks.
func (f *files) open(lineName string, streams []string, indexes string, vet int64) error {
	f.line = &line{}
	for i, name := range streams {
		s, err := f.segment(name, i+1)
		if err != nil {
			return err
		}
		if name != segmentName(lineName, s.n) || s.closed != (s.n < len(streams)) {
			return fmt.Errorf("%w: %s is not as it should be", ErrNeedsServer, name)
		}
		f.line.segments = append(f.line.segments, s)
	}
	if len(streams) == 0 {
		return fmt.Errorf("%w: there is no stream", ErrNeedsServer)
	}
	for i, s := range f.line.segments[1:] {
		full := f.line.segments[i]
		full.last = s.first - 1
		if err := full.openIndex(indexes); err != nil {
			return fmt.Errorf("%w: %w", ErrNeedsServer, err)
		}
	}
	size, err := f.list(f.line.active())
	for _, s := range slices.Backward(f.line.segments[:len(f.line.segments)-1]) {
		if err == nil {
			vet -= size
			size, err = f.vet(s, vet)
		}
	}
	return err
}

// segment reads the description of a stream.
func (f *files) segment(name string, n int) (*segment, error) {
	folder := filepath.Join(f.dir, name)
	text, err := os.ReadFile(filepath.Join(folder, natsfile.MetaFile))
	if err != nil {
		return nil, err
	}
	sum, err := os.ReadFile(filepath.Join(folder, natsfile.SumFile))
	if err != nil {
		return nil, err
	}
	if string(sum) != natsfile.Checksum(name, text) {
		return nil, fmt.Errorf("%w: %s has another checksum", ErrNeedsServer, filepath.Join(folder, natsfile.MetaFile))
	}
	var made struct{ Created time.Time }
	var c jetstream.StreamConfig
	if err := errors.Join(json.Unmarshal(text, &made), json.Unmarshal(text, &c), checkStream(c)); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNeedsServer, name, err)
	}
	return &segment{n: n, name: name, made: made.Created, first: events.Offset(max(c.FirstSeq, 1)), closed: isClosed(c)}, nil
}

func (f *files) messagesDir(s *segment) string { return filepath.Join(f.dir, s.name, "msgs") }

// list fills the table from the newest segment, and returns the size of its blocks.
func (f *files) list(s *segment) (size int64, err error) {
	f.first = s.first
	f.at = make([]uint32, 0, uint64(f.last+1-min(f.last+1, s.first)))
	f.subjects = make([]uint64, 0, cap(f.at))
	err = f.walk(s, slices.Values[[]int], func(number int, data []byte) (sound, more bool) {
		size += int64(len(data))
		f.blocks = append(f.blocks, blockOf{number, len(f.at)})
		whole := true
		sound = natsfile.Walk(s.name, number, data, func(seq uint64, at int, subject []byte) {
			if whole = whole && events.Offset(seq) == f.end() && f.end() <= f.last; whole {
				f.subjects, f.at = append(f.subjects, maphash.Bytes(f.seed, subject)), append(f.at, uint32(at))
			}
		})
		return sound && whole, true
	})
	if err == nil && f.end() != f.last+1 {
		err = fmt.Errorf("%w: %s ends before %v", ErrNeedsServer, s.name, f.last)
	}
	return size, err
}

// vet checks the newest blocks of a full segment, with at least so many bytes. It returns the size of those blocks.
func (f *files) vet(s *segment, bytes int64) (size int64, err error) {
	if bytes <= 0 {
		return 0, nil
	}
	end := uint64(s.last)
	backward := func(numbers []int) iter.Seq[int] { slices.Reverse(numbers); return slices.Values(numbers) }
	err = f.walk(s, backward, func(number int, data []byte) (sound, more bool) {
		var first, last uint64
		whole := true
		sound = natsfile.Walk(s.name, number, data, func(seq uint64, _ int, _ []byte) {
			if first == 0 {
				first, last = seq, seq-1
			}
			whole, last = whole && seq == last+1, seq
		})
		if first > 0 {
			whole, end = whole && last == end, first-1
		}
		size += int64(len(data))
		return sound && whole, size < bytes
	})
	return size, err
}

// walk reads the blocks of a segment in an order, until one is not sound or no more are needed.
func (f *files) walk(s *segment, order func([]int) iter.Seq[int], check func(number int, data []byte) (sound, more bool)) error {
	dir := f.messagesDir(s)
	numbers, err := natsfile.Numbers(dir)
	if err != nil {
		return err
	}
	var data []byte
	for number := range order(numbers) {
		if data, err = natsfile.Load(natsfile.Path(dir, number), data); err != nil {
			return err
		}
		sound, more := check(number, data)
		if !sound {
			return fmt.Errorf("%w: %s is damaged", ErrNeedsServer, natsfile.Path(dir, number))
		}
		if !more {
			break
		}
	}
	return nil
}

// end returns the offset behind the table's last record.
func (t *table) end() events.Offset { return t.first + events.Offset(len(t.at)) }

// of yields the offsets of a subject's records in the table between two offsets, both inclusive. Rarely it yields one of
// another subject.
func (t *table) of(subject string, from, upto events.Offset) iter.Seq[events.Offset] {
	hash := maphash.String(t.seed, subject)
	return func(yield func(events.Offset) bool) {
		for at := max(from, t.first); at <= upto && at < t.end(); at++ {
			if t.subjects[at-t.first] == hash && !yield(at) {
				return
			}
		}
	}
}

// tableReader reads records of the newest segment. It keeps a block open.
type tableReader struct {
	f     *files
	block *natsfile.Block // nil: none
	index int             // of the block
}

func (r *tableReader) read(at events.Offset) (Message, error) {
	i := int(at - r.f.first)
	index := sort.Search(len(r.f.blocks), func(n int) bool { return r.f.blocks[n].begin > i }) - 1
	if r.block == nil || r.index != index {
		r.close()
		s := r.f.line.active()
		var err error
		if r.block, err = natsfile.OpenBlock(r.f.messagesDir(s), s.name, r.f.blocks[index].number); err != nil {
			return Message{}, err
		}
		r.index = index
	}
	stored, err := r.block.Message(int(r.f.at[i]))
	if err == nil && events.Offset(stored.Seq) != at || errors.Is(err, natsfile.ErrUnsound) {
		return Message{}, ErrNotFound
	}
	return messageOf(stored), err
}

func (r *tableReader) close() {
	if r.block != nil {
		r.block.Close()
		r.block = nil
	}
}

// messageOf returns a message of a block.
func messageOf(m natsfile.Message) Message {
	return Message{Subject: m.Subject, Data: m.Data, Offset: events.Offset(m.Seq), Time: time.Unix(0, m.Time).UTC(), wire: m.Header}
}

// scanFiles is scan for a log in files. A subject's records in a full segment lie between the first and the last one in
// the index. If all of them can be read, damage in between concerns other subjects.
func (l *Log) scanFiles(ctx context.Context, s stretch) iter.Seq2[item, error] {
	f, match := l.files, matcher(s.filter)
	if strings.Contains(s.filter, "*") {
		return l.scanAll(ctx, s.after, s.upto, s.want, match)
	}
	return func(yield func(item, error) bool) {
		for _, seg := range f.line.segments {
			if seg.last == 0 {
				f.scanTable(ctx, l, s, yield)
				return
			}
			e, there, known := seg.find(s.filter)
			if !known { // the index is damaged
				e, there = segindex.Entry{First: uint64(seg.first), Last: uint64(seg.last), Count: uint64(seg.last)}, true
			}
			after, upto := max(s.after, events.Offset(e.First)-1), min(s.upto, events.Offset(e.Last))
			if !there || after >= upto {
				continue
			}
			isWhole := f.isWhole(ctx, seg, s.filter, e)
			for it, err := range l.scanAll(ctx, after, upto, 0, match) {
				if it.err != nil && isWhole() {
					continue
				}
				if !yield(it, err) || err != nil {
					return
				}
			}
		}
	}
}

// scanTable yields the items of a subject in the newest segment.
func (f *files) scanTable(ctx context.Context, l *Log, s stretch, yield func(item, error) bool) {
	r := &tableReader{f: f}
	defer r.close()
	for at := range f.of(s.filter, s.after+1, s.upto) {
		m, err := r.read(at)
		if err == nil {
			err = ctx.Err()
		}
		switch {
		case isNotFound(err):
			if !yield(item{at: at, err: l.lost(at)}, nil) {
				return
			}
		case err != nil:
			yield(item{}, err)
			return
		case m.Subject == s.filter && !yield(itemOf(m), nil):
			return
		}
	}
}

// isWhole returns a function that reports whether all records of a subject in a full segment can be read.
func (f *files) isWhole(ctx context.Context, s *segment, subject string, e segindex.Entry) func() bool {
	counted, whole := false, false
	return func() bool {
		if counted {
			return whole
		}
		n := uint64(0)
		for m, err := range f.messages(ctx, s, events.Offset(e.First), events.Offset(e.Last), matcher(subject)) {
			if err == nil && m.Subject == subject {
				n++
			}
		}
		counted, whole = true, n == e.Count
		return whole
	}
}

// messages yields the readable messages of a segment between two offsets, both inclusive. Messages whose subjects do not
// match come without header and data; a nil match matches all.
func (f *files) messages(ctx context.Context, s *segment, from, upto events.Offset, match func(subject string) bool) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		dir := f.messagesDir(s)
		r, err := natsfile.NewReader(dir, s.name, uint64(from), uint64(upto), match)
		if err != nil {
			yield(Message{}, err)
			return
		}
		defer r.Close()
		for {
			stored, err := r.Next()
			if err == nil {
				err = ctx.Err()
			}
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.Is(err, natsfile.ErrUnsound):
				f.salvage(ctx, s, from, upto, yield)
				return
			case err != nil:
				yield(Message{}, err)
				return
			case !yield(messageOf(stored), nil):
				return
			}
			from = events.Offset(stored.Seq) + 1
		}
	}
}

// salvage yields the sound messages of damaged blocks between two offsets, both inclusive.
func (f *files) salvage(ctx context.Context, s *segment, from, upto events.Offset, yield func(Message, error) bool) {
	type place struct {
		seq uint64
		at  int
	}
	dir := f.messagesDir(s)
	numbers, err := natsfile.Numbers(dir)
	for i := 0; err == nil && i < len(numbers); i++ {
		number := numbers[i]
		if i+1 < len(numbers) {
			if next, _ := natsfile.Begin(natsfile.Path(dir, numbers[i+1])); next > 0 && events.Offset(next) <= from {
				continue
			}
		}
		var data []byte
		if data, err = natsfile.Load(natsfile.Path(dir, number), nil); err != nil {
			break
		}
		var places []place
		natsfile.Walk(s.name, number, data, func(seq uint64, at int, _ []byte) {
			if events.Offset(seq) >= from && events.Offset(seq) <= upto {
				places = append(places, place{seq, at})
			}
		})
		var b *natsfile.Block
		if b, err = natsfile.OpenBlock(dir, s.name, number); err != nil {
			break
		}
		for _, p := range places {
			stored, err := b.Message(p.at)
			if events.Offset(p.seq) < from || errors.Is(err, natsfile.ErrUnsound) {
				continue
			}
			if err = errors.Join(err, ctx.Err()); !yield(messageOf(stored), err) || err != nil {
				b.Close()
				return
			}
			from = events.Offset(p.seq) + 1
		}
		b.Close()
	}
	if err != nil {
		yield(Message{}, err)
	}
}

// Scan implements Backend.
func (f *files) Scan(ctx context.Context, q Query) (Cursor, error) {
	if q.Live {
		return nil, fmt.Errorf("%w: nothing new comes to files", ErrNeedsServer)
	}
	c := &fileCursor{f: f, q: q}
	c.next, c.stop = iter.Pull2(f.all(ctx, q))
	return c, nil
}

// all yields the readable messages of a query.
func (f *files) all(ctx context.Context, q Query) iter.Seq2[Message, error] {
	match := q.Match
	if q.Filter != events.SubjectFilter {
		match = matcher(q.Filter)
	}
	return func(yield func(Message, error) bool) {
		for _, s := range f.line.segments {
			upto := min(q.Upto, f.last)
			if s.last != 0 {
				upto = min(upto, s.last)
			}
			for m, err := range f.messages(ctx, s, max(q.After+1, s.first), upto, match) {
				if err == nil && q.Filter != events.SubjectFilter && !match(m.Subject) {
					continue
				}
				if !yield(m, err) || err != nil {
					return
				}
			}
		}
	}
}

// fileCursor is a Cursor on files.
type fileCursor struct {
	f    *files
	q    Query
	next func() (Message, error, bool)
	stop func()
}

// Announced implements Cursor, for one subject and from the beginning of the log.
func (c *fileCursor) Announced(context.Context) (n uint64, err error) {
	if strings.Contains(c.q.Filter, "*") || c.q.After > 0 {
		return 0, ErrNeedsServer
	}
	for _, s := range c.f.line.segments {
		e, _, known := s.find(c.q.Filter)
		if !known && s.last != 0 {
			return 0, ErrNeedsServer
		}
		n += e.Count
	}
	for range c.f.of(c.q.Filter, 0, events.MaxOffset) {
		n++
	}
	return n, nil
}

// Next implements Cursor.
func (c *fileCursor) Next(context.Context) (Message, error) {
	m, err, more := c.next()
	if !more {
		return Message{}, io.EOF
	}
	return m, err
}

// Close implements Cursor.
func (c *fileCursor) Close() { c.stop() }

// Get implements Backend.
func (f *files) Get(ctx context.Context, at events.Offset) (Message, error) {
	s := f.line.segments[f.line.indexOf(at)]
	switch {
	case at < s.first || at > f.last:
		return Message{}, ErrNotFound
	case s.last == 0:
		r := &tableReader{f: f}
		defer r.close()
		return r.read(at)
	}
	for m, err := range f.messages(ctx, s, at, at, nil) {
		return m, err
	}
	return Message{}, ErrNotFound
}

// Last implements Backend. If the last message cannot be read, the error is ErrNotFound, and Announced counts it.
func (f *files) Last(ctx context.Context, subject string) (Message, error) {
	offsets := slices.Collect(f.of(subject, 0, events.MaxOffset))
	for _, at := range slices.Backward(offsets) {
		if m, err := f.Get(ctx, at); err != nil || m.Subject == subject {
			return m, err
		}
	}
	for _, s := range slices.Backward(f.line.segments) {
		e, there, known := s.find(subject)
		switch {
		case there:
			return f.Get(ctx, events.Offset(e.Last))
		case !known && s.last != 0:
			return Message{}, ErrNeedsServer
		}
	}
	return Message{}, ErrNotFound
}

// First implements firsts.
func (f *files) First(ctx context.Context, subject string) (Message, error) {
	for _, s := range f.line.segments {
		e, there, known := s.find(subject)
		switch {
		case there:
			m, err := f.Get(ctx, events.Offset(e.First))
			if isNotFound(err) {
				err = errors.ErrUnsupported
			}
			return m, err
		case !known && s.last != 0:
			return Message{}, errors.ErrUnsupported
		}
	}
	for at := range f.of(subject, 0, events.MaxOffset) {
		if m, err := f.Get(ctx, at); err != nil || m.Subject == subject {
			return m, err
		}
	}
	return Message{}, ErrNotFound
}

// State implements Backend.
func (f *files) State(context.Context) (State, error) {
	if f.last == 0 {
		return State{Now: f.now()}, nil
	}
	return State{First: f.line.segments[0].first, Last: f.last, Now: f.now()}, nil
}

// Subjects implements Backend. The files have no list of subjects.
func (f *files) Subjects(context.Context, string) (map[string]uint64, error) {
	return nil, fmt.Errorf("%w: the files have no list of subjects", ErrNeedsServer)
}

// Publish implements Backend.
func (f *files) Publish(context.Context, Publication) (Receipt, error) {
	return Receipt{}, fmt.Errorf("%w: the store is open for reading only", ErrUnavailable)
}

// Close implements Backend.
func (f *files) Close() error {
	var errs []error
	for _, s := range f.line.segments {
		if x := s.index.Swap(nil); x != nil {
			errs = append(errs, x.Close())
		}
	}
	return errors.Join(errs...)
}

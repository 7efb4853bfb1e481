package embedded

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/quota"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// An erasure rewrites records in the server's blocks, each at its place and with its length. So the server, indexes,
// counts and cursors notice nothing. Its steps:
//
//  1. the plan is tried on the blocks without writing, and refused if a record cannot be rewritten;
//  2. the plan is written into the store, and synced;
//  3. the blocks are replaced, some at a time, while nothing is appended and the server's streams are closed; the bytes
//     that they had are overwritten with zeros;
//  4. snapshots and views of the subjects are made again;
//  5. the receipt is appended, and the plan removed.
//
// A crash before 2 leaves nothing. After it, the next owner rewrites the remaining blocks before its server starts, and
// does 4 and 5 before other processes find it. A record that is erased already stays as it is.

// eraseStep is called before a step of an erasure. It is a variable for tests, which end the process there.
var eraseStep = func(step string) error { return nil }

// portion is the number of blocks that are replaced while appends wait.
const portion = 8

// eraser erases in the store that this process owns, one plan after the other.
type eraser struct {
	s *Server

	// beyond adds the places to a plan that the erasure does not reach; nil: it knows none.
	beyond func(ctx context.Context, p *erasure.Plan)

	// fold makes snapshots and views of the subjects again.
	fold func(ctx context.Context, subjects []events.Subject) error

	mu sync.Mutex // held during an erasure

	asking  sync.Mutex             // guards jobs
	jobs    map[string]*erasureJob // by receipt
	running sync.WaitGroup         // requests of attached processes, and jobs
}

// erase carries out a plan. Before the plan is in the store, an error changes nothing; after it, ctx has no effect.
func (e *eraser) erase(ctx context.Context, p erasure.Plan) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.resume(ctx); err != nil {
		return err
	}
	if e.beyond != nil {
		e.beyond(ctx, &p)
	}
	x := &erasing{dir: e.s.dir, plan: p}
	if err := e.s.tryErasure(ctx, x); err != nil {
		return fmt.Errorf("embedded: erase in %s: %w", e.s.dir, err)
	}
	// The commit point: from here on every owner of the store carries the plan out.
	if err := x.plan.Begin(e.s.dir); err != nil {
		return err
	}
	if err := eraseStep("begun"); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if err := e.s.eraseBlocks(ctx, x); err != nil {
		return fmt.Errorf("embedded: erase in %s: %w", e.s.dir, err)
	}
	return e.finish(ctx, x.plan)
}

// resume carries out the plan that an earlier attempt left, if there is one. The caller holds mu.
func (e *eraser) resume(ctx context.Context) error {
	p, ok, err := erasure.Load(e.s.dir)
	if err != nil || !ok {
		return err
	}
	x := &erasing{dir: e.s.dir, plan: p}
	if err := x.blocks(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if err := e.s.eraseBlocks(ctx, x); err != nil {
		return fmt.Errorf("embedded: erase in %s: %w", e.s.dir, err)
	}
	return e.finish(ctx, p)
}

// finish does the steps that follow when the blocks have lost the content. The caller holds mu.
func (e *eraser) finish(ctx context.Context, p erasure.Plan) error {
	steps := []struct {
		name string
		do   func() error
	}{
		{"folds", func() error {
			e.s.meter.Recount(p.Subjects...)
			return e.fold(ctx, p.Subjects)
		}},
		{"receipt", func() error {
			receipt, err := p.Event()
			if err == nil {
				_, err = e.s.events.Append(quota.Exempt(ctx), receipt.Subject, log.Any, receipt)
			}
			return err
		}},
		{"end", func() error { return erasure.End(e.s.dir) }},
	}
	for _, step := range steps {
		err := eraseStep(step.name)
		if err == nil {
			err = step.do()
		}
		if err != nil {
			return fmt.Errorf("embedded: erase in %s: %w", e.s.dir, err)
		}
	}
	return nil
}

// tryErasure does everything that an erasure does with blocks, except writing. It completes the plan with what remains
// of data that are kept by reference.
func (s *Server) tryErasure(ctx context.Context, x *erasing) error {
	if err := x.plan.Validate(); err != nil {
		return err
	}
	receipt, err := x.plan.Event()
	if err == nil {
		err = receipt.Validate()
	}
	if err == nil && len(receipt.Data) > events.MaxData {
		err = &log.SizeError{Index: -1, What: "the receipt", Size: len(receipt.Data), Max: events.MaxData}
	}
	if err != nil {
		return err
	}
	if !s.known {
		return fmt.Errorf("nats-server %s wrote its files, which this program does not know: nothing was changed: %w", strings.Join(s.servers, ", "), log.ErrNewer)
	}
	if err := s.health.check(); err != nil {
		return err
	}
	x.resolve = func(e events.Event) ([]byte, error) { return s.remains(ctx, e, x.plan.Receipt) }
	if err := x.blocks(); err != nil {
		return err
	}
	free, err := storedir.FreeBytes(s.dir)
	if reserve := s.health.room.reserve + uint64(x.largest); err == nil && free < reserve {
		return &log.FullError{Free: int64(free), Reserve: int64(reserve)}
	}
	return nil // a system that cannot report the free space refuses a write before it replaces anything
}

// remains returns what remains of data that an event keeps by reference. Data that cannot be read have no structure: then
// the result is a blank, which is invalid, as the record was.
func (s *Server) remains(ctx context.Context, e events.Event, receipt string) ([]byte, error) {
	rec, err := projector.Resolve(ctx, s.events, events.Record{Event: e}, events.MaxValue)
	if _, lost := errors.AsType[*events.DamageError](err); lost {
		return []byte(" "), nil
	}
	if err != nil {
		return nil, err
	}
	erased, err := rec.Event.Erase(receipt)
	return erased.Data, err
}

// eraseBlocks replaces the blocks of a plan. Appends wait for a portion of them at a time, and so do questions that only
// the server answers.
func (s *Server) eraseBlocks(ctx context.Context, x *erasing) error {
	x.resolve = nil
	if err := s.events.AtRest(ctx, x.aside); err != nil { // nobody else replaces a block meanwhile
		return err
	}
	for list := range slices.Chunk(x.found, portion) {
		err := s.events.AtRest(ctx, func() error {
			err := s.closeStreams()
			for i := 0; i < len(list) && err == nil; i++ {
				err = x.replace(list[i])
			}
			if s.blocks != nil {
				s.blocks.forget()
			}
			return errors.Join(err, s.openStreams())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eraseAtRest replaces the blocks of a plan that an earlier owner left, before the server starts. The rest of the plan is
// left to an eraser.
func (s *Server) eraseAtRest() error {
	p, ok, err := erasure.Load(s.dir)
	if err != nil || !ok {
		return err
	}
	if !s.known {
		s.logger.Error("an erasure is not complete, and this program does not know the server's files", "dir", s.dir, "receipt", p.Receipt)
		return nil
	}
	s.logger.Info("an erasure is completed", "dir", s.dir, "receipt", p.Receipt, "records", len(p.Records))
	x := &erasing{dir: s.dir, plan: p}
	err = x.blocks()
	if err == nil {
		err = x.aside()
	}
	for i := 0; i < len(x.found) && err == nil; i++ {
		err = x.replace(x.found[i])
	}
	if err != nil {
		return fmt.Errorf("complete erasure %s: %w", p.Receipt, err)
	}
	return nil
}

// erasing erases records in files that no server has open.
type erasing struct {
	dir  string
	plan erasure.Plan

	// resolve returns what remains of the data of an event that are kept by reference. nil: the plan has it.
	resolve func(e events.Event) ([]byte, error)

	found   []block      // that change
	largest int          // size of the largest one
	seen    map[int]bool // records of the plan, by index, that a block has
	buffer  []byte       // reused for each block
}

// block is a file with messages of a stream.
type block struct {
	stream string
	number int
	path   string
}

// blocks finds the blocks that change. It reads those in which the plan's records lie, as the first records of the blocks
// say. If a record is not there, it reads the blocks on both sides, because a first record may be damaged.
func (x *erasing) blocks() error {
	streams, err := storedir.StreamFolders(x.dir)
	if err != nil {
		return err
	}
	var all []block
	var begins []events.Offset
	for _, name := range streams {
		msgs := natsfile.Messages(x.dir, name)
		numbers, err := natsfile.Numbers(msgs)
		if err != nil {
			return err
		}
		for _, n := range numbers {
			b := block{name, n, natsfile.Path(msgs, n)}
			first, err := natsfile.Begin(b.path)
			if err != nil {
				return err
			}
			if n := len(begins); first == 0 && n > 0 { // the block is empty, or not to be trusted
				first = uint64(begins[n-1])
			}
			all, begins = append(all, b), append(begins, events.Offset(first))
		}
	}
	x.found, x.largest, x.seen = nil, 0, make(map[int]bool)
	read := make(map[int]bool)
	look := func(from, upto int) error {
		for i := max(0, from); i <= min(upto, len(all)-1); i++ {
			if read[i] {
				continue
			}
			read[i] = true
			changed, err := x.load(all[i])
			if err != nil {
				return err
			}
			if changed {
				x.found, x.largest = append(x.found, all[i]), max(x.largest, len(x.buffer))
			}
		}
		return nil
	}
	place := func(r erasure.Record) int { // of the last block that begins at or below the record
		next, _ := slices.BinarySearch(begins, r.Offset+1)
		return next - 1
	}
	inOrder := slices.IsSorted(begins)
	for n, r := range x.plan.Records {
		if i := place(r); inOrder && !x.seen[n] {
			if err := look(i, i); err != nil {
				return err
			}
		}
	}
	for n, r := range x.plan.Records {
		if x.seen[n] {
			continue
		}
		from, upto := place(r)-1, place(r)+1
		if !inOrder {
			from, upto = 0, len(all)
		}
		if err := look(from, upto); err != nil {
			return err
		}
	}
	return nil
}

// load reads a block into the buffer, erases in it, and reports whether it changed.
func (x *erasing) load(b block) (changed bool, err error) {
	if x.buffer, err = natsfile.Load(b.path, x.buffer); err != nil {
		return false, err
	}
	w := natsfile.Rewriter{Change: x.change, Lost: x.hasBetween}
	if changed, err = w.Rewrite(b.stream, b.number, x.buffer); err != nil {
		return false, fmt.Errorf("%s: %w", b.path, err)
	}
	return changed, nil
}

// replace erases in a block's file.
func (x *erasing) replace(b block) error {
	changed, err := x.load(b)
	if err == nil && changed {
		err = eraseStep("block")
	}
	if err != nil || !changed {
		return err
	}
	return natsfile.Replace(b.path, b.stream, x.buffer)
}

// keptBlock matches the names of the copies of damaged blocks: see keep.
var keptBlock = regexp.MustCompile(`^(TALLY_\d+)-(\d+)\.blk(\.\d+)?$`)

// aside erases in the copies of damaged blocks, and removes what a crash left of a block that was being replaced.
func (x *erasing) aside() error {
	for _, dir := range []string{storedir.DamagedDir(x.dir), natsfile.Streams(x.dir)} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil || d.IsDir():
				return err
			case durable.IsTemporary(path) && strings.Contains(d.Name(), natsfile.Layout.Block):
				return durable.Erase(path)
			}
			m := keptBlock.FindStringSubmatch(d.Name())
			if m == nil {
				return nil
			}
			n, err := strconv.Atoi(m[2])
			if err != nil {
				return nil
			}
			return x.replace(block{m[1], n, path})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// hasBetween reports whether the plan has a record between two offsets, both inclusive.
func (x *erasing) hasBetween(from, upto uint64) bool {
	n, found := x.index(events.Offset(from))
	return found || n < len(x.plan.Records) && x.plan.Records[n].Offset <= events.Offset(upto)
}

func (x *erasing) index(at events.Offset) (n int, found bool) {
	return slices.BinarySearchFunc(x.plan.Records, at, func(r erasure.Record, at events.Offset) int { return cmp.Compare(r.Offset, at) })
}

// change returns the erased form of a message.
func (x *erasing) change(m natsfile.Message) (header string, data []byte, same bool, err error) {
	n, found := x.index(events.Offset(m.Seq))
	if !found {
		return "", nil, true, nil
	}
	x.seen[n] = true
	kept := keptHeader(m.Header)
	fields, err := nats.DecodeHeadersMsg([]byte(m.Header))
	var e events.Event
	if err == nil {
		e, err = events.DecodeMessage(m.Subject, fields, m.Data)
	}
	if err != nil { // it is no event, and remains none
		header = "NATS/1.0\r\n" + kept + "\r\n"
		return header, nil, m.Header == header && len(bytes.Trim(m.Data, " ")) == 0, nil
	}
	r := &x.plan.Records[n]
	if e.Subject != r.Subject {
		return "", nil, false, fmt.Errorf("%w: it is of %s, not of %s", log.ErrConflict, e.Subject, r.Subject)
	}
	erased, err := x.erase(e, r)
	if err != nil || erased.Equal(e) {
		return "", nil, err == nil, err
	}
	return "NATS/1.0\r\n" + kept + string(events.AppendHeader(nil, erased)) + "\r\n", erased.Data, false, nil
}

// keptHeader returns the lines of a header that an erased record keeps: they are the server's and the log's.
func keptHeader(header string) string {
	var kept strings.Builder
	for line := range strings.SplitAfterSeq(header, "\r\n") {
		if strings.HasPrefix(line, "Nats-") || strings.HasPrefix(line, "Tally-") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// erase returns an event without what the plan's record names.
func (x *erasing) erase(e events.Event, r *erasure.Record) (events.Event, error) {
	if e.Type != events.TypeUnitAppended {
		return x.eraseOne(e, r.Turns, &r.Remains)
	}
	i, isWhole := -1, r.Copies == nil
	return e.EraseCopies(x.plan.Receipt, func(e events.Event) (events.Event, error) {
		i++
		if isWhole {
			r.Copies = append(r.Copies, erasure.Copy{Index: i}) // which may get what remains of it
		}
		n := slices.IndexFunc(r.Copies, func(c erasure.Copy) bool { return c.Index == i })
		if n < 0 {
			return e, nil
		}
		return x.eraseOne(e, r.Copies[n].Turns, &r.Copies[n].Remains)
	})
}

// eraseOne returns an event without some turns, or without all content. If its data are kept by reference, remains is
// what remains of them.
func (x *erasing) eraseOne(e events.Event, turns []int, remains *[]byte) (events.Event, error) {
	if e.Extensions[events.ExtDataRef] != "" && len(e.Data) == 0 && events.IsKnown(e.Type) && e.Type != events.TypeDocumentWritten {
		if *remains == nil && x.resolve != nil {
			var err error
			if *remains, err = x.resolve(e); err != nil {
				return e, err
			}
		}
		e.Data = *remains
	}
	return erasure.Erase(e, x.plan.Receipt, turns)
}

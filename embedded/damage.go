package embedded

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/block"
	"github.com/tallylog/tally/internal/durable"
	"github.com/tallylog/tally/log"
)

// After an unclean stop the server reads blocks again. From the first damaged record
// of a block on it throws the rest away; if that was the end of the log, it hands the
// numbers out a second time. So the blocks are looked through before the server opens
// them: a damaged one is kept aside, what the server will lose of it is written down
// for ever after, and the log goes on above every number that was ever seen.

// damagedDir holds the blocks that were kept aside and the list of what was lost.
func damagedDir(dir string) string { return filepath.Join(dir, "damaged") }

const holesFile = "holes.json"

// holes is the list of what was lost.
type holes struct {
	Version int        `json:"version"`
	Lost    []log.Hole `json:"lost"` // by offset
}

func readHoles(dir string) ([]log.Hole, error) {
	text, err := os.ReadFile(filepath.Join(damagedDir(dir), holesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var h holes
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, fmt.Errorf("%s: %v", holesFile, err)
	}
	return h.Lost, nil
}

// addHoles adds to the list of what was lost.
func addHoles(dir string, lost []log.Hole) error {
	known, err := readHoles(dir)
	if err != nil {
		return err
	}
	all := append(known, lost...)
	slices.SortStableFunc(all, func(a, b log.Hole) int { return cmp.Compare(a.Offset, b.Offset) })
	all = slices.CompactFunc(all, func(a, b log.Hole) bool { return a.Offset == b.Offset })
	text, err := json.Marshal(holes{Version: 1, Lost: all})
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(damagedDir(dir), holesFile), append(text, '\n'), 0o600, durable.WithSync)
}

// examination is a look at the blocks of a store that nobody serves.
type examination struct {
	dir      string
	durable  events.Offset // up to which everything was acknowledged as durable
	sameBoot bool          // nothing can be torn but by the process's own death

	seen events.Offset // the highest offset that was ever given, as far as is known
	lost []log.Hole
	kept []string // blocks kept aside
}

// examine looks at what the server will read: after an unclean stop the streams
// without index, after a clean one the end of the last stream.
func (s *Server) examine(m mark) (*examination, error) {
	at, _ := s.durable.get()
	x := &examination{dir: s.dir, durable: max(at, m.Durable), sameBoot: m.Boot != "" && m.Boot == bootID()}
	x.seen = x.durable
	names, err := streamFolders(s.dir)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(names, func(a, b string) int { return streamNumber(a) - streamNumber(b) })
	for i, name := range names {
		last := i == len(names)-1
		if err := x.stream(name, last, m.Clean); err != nil {
			return nil, err
		}
	}
	return x, nil
}

func (x *examination) stream(name string, last, clean bool) error {
	msgs := filepath.Join(streamsDir(x.dir), name, "msgs")
	n, err := unindexedBytes(msgs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	blocks, err := blocksOf(msgs)
	if err != nil {
		return err
	}
	switch {
	case !last && (clean || n == 0):
		return nil
	case last && clean && len(blocks) > 0:
		// The server looks at the last record only. If it does not like it, it reads all.
		sound, err := x.sound(msgs, name, blocks[len(blocks)-1])
		if sound || err != nil {
			return err
		}
	}
	for i, number := range blocks {
		next := 0
		if i+1 < len(blocks) {
			next = blocks[i+1]
		}
		if err := x.block(msgs, name, number, next, last && next == 0); err != nil {
			return err
		}
	}
	return nil
}

// blocksOf lists a stream's blocks by their numbers.
func blocksOf(msgs string) (numbers []int, err error) {
	entries, err := os.ReadDir(msgs)
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), ".blk")
		if n, err := strconv.Atoi(digits); ok && err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

func blockPath(msgs string, number int) string {
	return filepath.Join(msgs, strconv.Itoa(number)+".blk")
}

func (x *examination) sound(msgs, stream string, number int) (bool, error) {
	data, err := os.ReadFile(blockPath(msgs, number))
	if err != nil {
		return false, err
	}
	_, gaps := block.Scan(stream, number, data)
	return len(gaps) == 0, nil
}

// block looks at one block. end says that it is the end of the log.
func (x *examination) block(msgs, stream string, number, next int, end bool) error {
	data, err := os.ReadFile(blockPath(msgs, number))
	if err != nil {
		return err
	}
	records, gaps := block.Scan(stream, number, data)
	if n := len(records); n > 0 {
		x.seen = max(x.seen, events.Offset(records[n-1].Seq))
	}
	i := slices.IndexFunc(gaps, func(g block.Gap) bool { return !g.Taken })
	for _, g := range gaps {
		if g.Taken { // the server keeps it, as somebody else's
			x.note(nil, g, events.Offset(g.Seq), events.Offset(g.Seq))
		}
	}
	if i < 0 {
		return nil
	}
	gap := gaps[i]
	behind := slices.IndexFunc(records, func(r block.Record) bool { return r.Begin >= gap.End })
	from := x.firstLost(msgs, stream, number, records, gap)
	upto := from
	switch {
	case behind >= 0:
		upto = events.Offset(records[len(records)-1].Seq)
	case next != 0:
		if first, ok := firstOf(msgs, stream, next); ok {
			upto = first - 1
		}
	case end:
		upto = max(from, x.durable)
	}
	if end && behind < 0 && from > x.durable && !(x.sameBoot && gap.Whole) {
		return nil // what was being written when the process or the power went
	}
	x.note(records, gap, from, upto)
	return x.keep(blockPath(msgs, number), stream, number)
}

// firstLost gives the offset of the damaged record: the one behind the last sound one.
func (x *examination) firstLost(msgs, stream string, number int, records []block.Record, gap block.Gap) events.Offset {
	before := slices.IndexFunc(records, func(r block.Record) bool { return r.Begin >= gap.Begin })
	if before < 0 {
		before = len(records)
	}
	if before > 0 {
		return events.Offset(records[before-1].Seq) + 1
	}
	if number > 1 {
		if data, err := os.ReadFile(blockPath(msgs, number-1)); err == nil {
			if earlier, _ := block.Scan(stream, number-1, data); len(earlier) > 0 {
				return events.Offset(earlier[len(earlier)-1].Seq) + 1
			}
		}
	}
	if first, err := firstSequence(filepath.Dir(msgs)); err == nil {
		return first // nothing is before it in this stream
	}
	if len(records) > 0 {
		return events.Offset(records[0].Seq) - 1
	}
	return x.durable
}

// firstOf gives the first offset that a block holds for sure.
func firstOf(msgs, stream string, number int) (events.Offset, bool) {
	data, err := os.ReadFile(blockPath(msgs, number))
	if err != nil {
		return 0, false
	}
	records, _ := block.Scan(stream, number, data)
	if len(records) == 0 {
		return 0, false
	}
	return events.Offset(records[0].Seq), true
}

// firstSequence gives the first offset that a stream can hold.
func firstSequence(stream string) (events.Offset, error) {
	text, err := os.ReadFile(filepath.Join(stream, metaFile))
	if err != nil {
		return 0, err
	}
	var meta struct {
		First events.Offset `json:"first_seq"`
	}
	err = json.Unmarshal(text, &meta)
	return max(meta.First, 1), err
}

// note adds to what is lost the offsets from one to another, with the subjects of
// those that can still be read.
func (x *examination) note(records []block.Record, gap block.Gap, from, upto events.Offset) {
	subjects := make(map[events.Offset]string)
	if _, err := events.ParseNATS(gap.Subject); err == nil {
		subjects[from] = gap.Subject
	}
	for _, r := range records {
		subjects[events.Offset(r.Seq)] = r.Subject
	}
	for at := from; at <= upto; at++ {
		x.lost = append(x.lost, log.Hole{Offset: at, Subject: subjects[at]})
	}
	x.seen = max(x.seen, upto)
}

// keep copies a block to where the server does not touch it.
func (x *examination) keep(path, stream string, number int) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		kept := filepath.Join(damagedDir(x.dir), fmt.Sprintf("%s-%d.blk", stream, number))
		if n > 0 {
			kept += "." + strconv.Itoa(n)
		}
		before, err := os.ReadFile(kept)
		if err == nil && string(before) != string(data) {
			continue // of another time
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		x.kept = append(x.kept, kept)
		return durable.Replace(kept, data, 0o600, durable.WithSync)
	}
}

// beforeOpening keeps what the server would destroy, and writes down what it will
// lose.
func (s *Server) beforeOpening(m mark) error {
	if err := os.MkdirAll(damagedDir(s.dir), 0o700); err != nil {
		return err
	}
	x, err := s.examine(m)
	if err != nil {
		return err
	}
	s.seen = x.seen
	if len(x.lost) > 0 {
		s.logger.Error("the store is damaged: verify says what is missing, the damaged blocks are kept",
			"dir", s.dir, "records", len(x.lost), "kept", x.kept)
		if err := addHoles(s.dir, x.lost); err != nil {
			return err
		}
	}
	s.holes, err = readHoles(s.dir)
	return err
}

// findings collects what reads find to be lost while the store is open. It is written
// down soon: the server may forget at its next start that it ever had it.
type findings struct {
	dir string

	mu    sync.Mutex // guards what follows
	fresh []log.Hole
	later *time.Timer // nil: nothing is to be written
	err   error
}

// soon is how long what was found waits for more.
const soon = 50 * time.Millisecond

func (f *findings) add(h log.Hole) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fresh = append(f.fresh, h)
	if f.later == nil {
		f.later = time.AfterFunc(soon, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.write()
		})
	}
}

// write writes down what was found. The caller holds mu.
func (f *findings) write() {
	f.later = nil
	if len(f.fresh) > 0 {
		f.err = addHoles(f.dir, f.fresh)
		f.fresh = nil
	}
}

// close writes down the rest.
func (f *findings) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.later != nil {
		f.later.Stop()
	}
	f.write()
	return f.err
}

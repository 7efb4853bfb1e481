package embedded

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
)

// After an unclean stop the server reads blocks again. From the first damaged record
// of a block on it throws the rest away; if that was the end of the log, it hands the
// numbers out a second time. So the blocks are looked through before the server opens
// them: a damaged one is kept aside, what the server will lose of it is written down
// for ever after, and the log goes on above every number that was ever seen.

// examination is a look at the blocks of a store that nobody serves.
type examination struct {
	dir      string
	durable  events.Offset // up to which everything was acknowledged as durable
	sameBoot bool          // nothing can be torn but by the process's own death

	known   []log.Hole      // what was lost before, by offset
	seen    events.Offset   // the highest offset that was ever given, as far as is known
	prove   func() error    // that the layout is the known one, or errOtherLayout
	vouched map[string]bool // streams that have a sound record

	lost   []log.Hole
	kept   []string        // blocks kept aside
	mended int             // bits
	later  []examined      // blocks for which there was no time: the newest first
	left   []events.Offset // records that the server keeps and cannot read

	buffer []byte // for one block after the other
}

// examination begins one of this store.
func (s *Server) examination() *examination {
	return &examination{dir: s.dir, durable: s.durable.get(), seen: s.durable.get(), prove: s.prove, vouched: make(map[string]bool)}
}

// mendFiles mends what a crash or a disk left of the server's files, keeps what the server
// would destroy, and writes down what it will lose.
func (s *Server) mendFiles(m storedir.Mark, vet uint64) error {
	x := s.examination()
	x.sameBoot = m.Boot != "" && m.Boot == bootID()
	folders, err := storedir.StreamFolders(s.dir)
	if err != nil {
		return err
	}
	for _, name := range folders {
		if err := x.setUnbornAside(name, m); err != nil {
			return err
		}
	}
	expected, err := expectedStreams(s.dir, m)
	if err != nil {
		return err
	}
	for _, name := range expected {
		if err := x.mendMeta(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := x.examine(m.Clean, int64(min(vet, math.MaxInt64))); err != nil {
		return err
	}
	s.seen, s.unvetted, s.unread = x.seen, x.later, x.left
	return s.reportDamage(x)
}

// examine looks at what the server will read after an unclean stop: the streams that
// are younger than their index. And at so many bytes of the other blocks, the newest
// first; the rest is left to scrub.
func (x *examination) examine(clean bool, budget int64) error {
	names, err := storedir.StreamFolders(x.dir)
	if err == nil {
		x.known, err = storedir.ReadHoles(x.dir)
	}
	if err != nil {
		return err
	}
	for i, name := range slices.Backward(names) {
		if err := x.stream(name, i == len(names)-1, clean, &budget); err != nil {
			return err
		}
	}
	slices.SortFunc(x.lost, func(a, b log.Hole) int { return cmp.Compare(a.Offset, b.Offset) })
	return nil
}

// stream looks at the blocks of one stream: at all of them if the server will read
// them.
func (x *examination) stream(name string, last, clean bool, budget *int64) error {
	msgs := natsfile.Messages(x.dir, name)
	n, err := natsfile.Unindexed(x.dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	blocks, err := natsfile.Numbers(msgs)
	if err != nil {
		return err
	}
	reread, left := !clean && n > 0, len(x.later)
	again, err := x.blocks(name, msgs, blocks, last, reread, budget)
	if again && err == nil {
		// A server that does not like the last record reads everything, whatever its index
		// says.
		x.later = x.later[:left]
		_, err = x.blocks(name, msgs, blocks, last, true, budget)
	}
	return err
}

// blocks looks at the blocks of a stream, the newest first. If the server is not known
// to read them all, it looks at as many as the budget has room for, and stops to report
// that it will.
func (x *examination) blocks(name, msgs string, blocks []int, last, reread bool, budget *int64) (again bool, err error) {
	for i, number := range slices.Backward(blocks) {
		b := examined{name: name, msgs: msgs, number: number, end: last && i == len(blocks)-1}
		if i+1 < len(blocks) {
			b.next = blocks[i+1]
		}
		if !reread && *budget <= 0 {
			x.later = append(x.later, b)
			continue
		}
		sound, err := x.sound(&b)
		if err != nil {
			return false, err
		}
		*budget -= int64(len(b.data))
		if sound {
			continue
		}
		if err := b.read(); err != nil {
			return false, err
		}
		disliked, err := x.block(&b, reread)
		x.leave(&b)
		if err != nil || disliked && b.end && !reread {
			return true, err
		}
	}
	return false, nil
}

// sound reports whether a block is not damaged, as nearly all are.
func (x *examination) sound(b *examined) (bool, error) {
	var err error
	if b.data, err = natsfile.Load(natsfile.Path(b.msgs, b.number), x.buffer); err != nil {
		return false, err
	}
	x.buffer = b.data
	last, sound := natsfile.Sound(b.name, b.number, b.data)
	if !sound {
		return false, nil
	}
	x.seen = max(x.seen, events.Offset(last))
	x.vouched[b.name] = x.vouched[b.name] || last > 0
	return true, x.between(b, events.Offset(last))
}

// vouch makes sure that a block of which something is damaged is one of the known layout:
// a record of its stream is sound, by a hash whose key has the names of both. Else
// nothing may be changed in it, or written down as lost of it.
func (x *examination) vouch(b *examined) error {
	if x.vouched[b.name] || b.vouches() {
		x.vouched[b.name] = true
		return nil
	}
	numbers, err := natsfile.Numbers(b.msgs)
	if err != nil {
		return err
	}
	for _, number := range numbers {
		other, err := b.beside(number)
		if err != nil {
			return err
		}
		if other.vouches() {
			x.vouched[b.name] = true
			return nil
		}
	}
	if err := x.prove(); err != nil {
		return err
	}
	return &LayoutError{Dir: x.dir, File: natsfile.Path(b.msgs, b.number)}
}

// vouches reports whether a record of the block has the hash that it should have.
func (b *examined) vouches() bool {
	return len(b.records) > 0 || slices.ContainsFunc(b.gaps, func(g natsfile.Gap) bool { return g.Taken })
}

// between looks for records that are missing between a sound block, of which the last is
// given, and the next: a server that reads a damaged block throws the rest of it away,
// and does not say so the next time.
func (x *examination) between(b *examined, last events.Offset) error {
	if b.next == 0 || last == 0 {
		return nil
	}
	seq, err := natsfile.Begin(natsfile.Path(b.msgs, b.next))
	first := events.Offset(seq)
	if err != nil || first > last+mostBetween {
		return err // the next one begins with a damaged record
	}
	x.lost = append(x.lost, unknown(x.known, last+1, first)...)
	return nil
}

// mostBetween is more records than a block can have.
const mostBetween = 1 << 20

// examined is a block under examination.
type examined struct {
	name, msgs   string
	number, next int  // next is 0 for the last one of the stream
	end          bool // it is the end of the log
	data         []byte
	records      []natsfile.Record
	gaps         []natsfile.Gap
}

func (b *examined) read() (err error) {
	if b.data, err = os.ReadFile(natsfile.Path(b.msgs, b.number)); err == nil {
		b.records, b.gaps = natsfile.Scan(b.name, b.number, b.data)
	}
	return err
}

// beside reads another block of the stream.
func (b *examined) beside(number int) (examined, error) {
	other := examined{name: b.name, msgs: b.msgs, number: number}
	err := other.read()
	return other, err
}

// behind gives the first offset behind a gap that is there for sure, in the block or else
// in the next one.
func (b *examined) behind(gap natsfile.Gap) (at events.Offset, known bool) {
	records := b.records
	i := slices.IndexFunc(records, func(r natsfile.Record) bool { return r.Begin >= gap.End })
	if i < 0 && b.next != 0 {
		next, err := b.beside(b.next)
		if err == nil && len(next.records) > 0 {
			records, i = next.records, 0
		}
	}
	if i < 0 {
		return 0, false
	}
	return events.Offset(records[i].Seq), true
}

// block mends what can be mended in a block, keeps one aside of which the server will
// throw something away, and notes what that is. It reports whether the server will
// want to read the stream again, if the block is its last one.
func (x *examination) block(b *examined, reread bool) (again bool, err error) {
	if n := len(b.records); n > 0 {
		x.seen = max(x.seen, events.Offset(b.records[n-1].Seq))
	}
	if len(b.gaps) > 0 {
		if err := x.mend(b); err != nil {
			return false, err
		}
	}
	for _, g := range b.gaps {
		if g.Taken { // the server keeps it, as somebody else's
			x.note(b, nil, g, events.Offset(g.Seq), events.Offset(g.Seq))
		}
	}
	if !reread {
		if err := x.straighten(b); err != nil {
			return false, err
		}
	}
	i := slices.IndexFunc(b.gaps, func(g natsfile.Gap) bool {
		_, _, clear := x.place(b, g)
		return !g.Taken && (reread || g.Misleading || !clear)
	})
	if i < 0 {
		return slices.ContainsFunc(b.gaps, func(g natsfile.Gap) bool { return g.End == len(b.data) }), nil
	}
	from, upto, torn := x.extent(b, b.gaps[i])
	if torn {
		return false, nil
	}
	if err := x.vouch(b); err != nil {
		return false, err
	}
	x.note(b, b.records, b.gaps[i], from, upto)
	if err := x.keep(b); err != nil {
		return false, err
	}
	if !reread {
		return false, b.cut(b.gaps[i].Begin)
	}
	return false, nil
}

// extent gives the offsets that a damaged record takes with it: all behind it in its
// block. Or it is torn: what was being written when the process or the power went.
func (x *examination) extent(b *examined, gap natsfile.Gap) (from, upto events.Offset, torn bool) {
	from = x.firstLost(b, gap)
	upto = from
	if n := len(b.records); n > 0 && b.records[n-1].Begin >= gap.End {
		return from, events.Offset(b.records[n-1].Seq), false
	}
	if next, known := b.behind(gap); known {
		upto = next - 1
	} else if b.end {
		upto = max(from, x.durable)
		torn = from > x.durable && !(x.sameBoot && gap.Whole)
	}
	return from, upto, torn
}

// firstLost gives the offset of the damaged record: the one behind the last sound one.
func (x *examination) firstLost(b *examined, gap natsfile.Gap) events.Offset {
	for _, r := range slices.Backward(b.records) {
		if r.Begin < gap.Begin {
			return events.Offset(r.Seq) + 1
		}
	}
	if b.number > 1 {
		if before, err := b.beside(b.number - 1); err == nil && len(before.records) > 0 {
			return events.Offset(before.records[len(before.records)-1].Seq) + 1
		}
	}
	if first, err := natsfile.FirstSequence(x.dir, b.name); err == nil {
		return events.Offset(first) // nothing is before it in this stream
	}
	if len(b.records) > 0 {
		return events.Offset(b.records[0].Seq) - 1
	}
	return x.durable
}

// note adds to what is lost the offsets from one to another, with the subjects of
// those that can still be read.
func (x *examination) note(b *examined, records []natsfile.Record, gap natsfile.Gap, from, upto events.Offset) {
	subjects := make(map[events.Offset]string)
	subjects[from] = b.subjectOf(gap)
	for _, r := range records {
		subjects[events.Offset(r.Seq)] = r.Subject
	}
	for at := from; at <= upto; at++ {
		x.lost = append(x.lost, log.Hole{Offset: at, Subject: subjects[at]})
	}
	x.seen = max(x.seen, upto)
}

// leave notes the records of a damaged block that the server keeps and cannot read: with an
// index of before the damage it still counts them.
func (x *examination) leave(b *examined) {
	for _, g := range b.gaps {
		from, upto, torn := x.extent(b, g)
		if g.Taken || torn {
			continue
		}
		if g.Whole {
			upto = from
		}
		for at := from; at <= upto; at++ {
			x.left = append(x.left, at)
		}
	}
}

// subjectOf returns the subject of a damaged record, "" if the rest of the record does not
// confirm it: flipped bits may have made the name of another subject.
func (b *examined) subjectOf(gap natsfile.Gap) string {
	sub, err := events.ParseNATS(gap.Subject)
	isSure := gap.Bit >= 0 || gap.Taken // the hash of the record is right
	if err != nil || !isSure && !bytes.Contains(b.data[gap.Begin:gap.End], []byte("ce-subject: "+sub.String()+"\r\n")) {
		return ""
	}
	return gap.Subject
}

// keep copies a block to where the server does not touch it.
func (x *examination) keep(b *examined) error {
	for n := 0; ; n++ {
		kept := filepath.Join(storedir.DamagedDir(x.dir), fmt.Sprintf("%s-%d.blk", b.name, b.number))
		if n > 0 {
			kept += "." + strconv.Itoa(n)
		}
		before, err := os.ReadFile(kept)
		if err == nil && !bytes.Equal(before, b.data) {
			continue // of another time
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		x.kept = append(x.kept, kept)
		return durable.Replace(kept, b.data, 0o600, durable.WithSync)
	}
}

// reportDamage says what was found, and writes down what is lost.
func (s *Server) reportDamage(x *examination) error {
	if x.mended > 0 {
		s.logger.Error("flipped bits were found in the store, and flipped back: the disk or the memory is not to be trusted",
			"dir", s.dir, "bits", x.mended, "kept", x.kept)
	}
	if len(x.lost) == 0 {
		return nil
	}
	s.logger.Error("the store is damaged: verify says what is missing, the damaged blocks are kept",
		"dir", s.dir, "records", len(x.lost), "kept", x.kept)
	return storedir.AddHoles(s.dir, x.lost)
}

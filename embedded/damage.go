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

// After an unclean stop the server reads blocks again. It discards a block from its first damaged record on. If the
// block was the end of the log, the server assigns the discarded sequence numbers again. So tally checks the blocks
// before the server opens them: it copies a damaged block to another folder, adds the records that the server will
// discard to the list of lost records, and continues the log above the highest sequence ever seen.

// examination checks the blocks of a store that no process serves.
type examination struct {
	dir      string
	durable  events.Offset // the highest offset acknowledged as durable
	sameBoot bool          // the machine has not restarted since, so only the process's death can have torn a record

	known   []log.Hole      // records lost earlier, by offset
	seen    events.Offset   // the highest known offset
	prove   func() error    // verifies the file layout; may return errOtherLayout
	store   func() error    // adds lost to the list; called before a change of a block hides records
	close   func() error    // called directly before a change of a block
	vouched map[string]bool // streams with an intact record

	lost   []log.Hole
	kept   []string        // paths of the copies of damaged blocks
	mended int             // number of flipped bits
	later  []examined      // blocks to check later, newest first
	left   []events.Offset // records that the server keeps and cannot read

	buffer []byte // reused for each block
}

// examination returns a new examination of this store.
func (s *Server) examination() *examination {
	x := &examination{dir: s.dir, durable: s.durable.get(), seen: s.durable.get(), prove: s.prove, vouched: make(map[string]bool)}
	x.store = func() error { return s.found.store(x.lost) }
	x.close = func() error { return nil }
	return x
}

// mendFiles repairs the server's files after a crash or disk damage. It copies blocks that the server would damage
// further, and adds the records that the server will discard to the list of lost records.
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

// examine checks the streams that are newer than their index, which the server reads after an unclean stop. It checks
// up to budget bytes of the other blocks, newest first, and leaves the rest to scrub.
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

// stream checks the blocks of one stream. If the server will read the stream, it checks all blocks regardless of the
// budget.
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
	reread, left, unread := !clean && n > 0, len(x.later), len(x.left)
	again, err := x.blocks(name, msgs, blocks, last, reread, budget)
	if again && err == nil {
		// If the server rejects the last record, or has no index since a block was cut, it reads the whole stream. It then
		// discards the end of other damaged blocks too.
		x.later, x.left = x.later[:left], x.left[:unread]
		_, err = x.blocks(name, msgs, blocks, last, true, budget)
	}
	return err
}

// blocks checks the blocks of a stream, newest first. Without reread it checks as many as fit in the budget. If it then
// finds that the server will read the whole stream, it stops and returns again.
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
		if err != nil || !reread && (disliked && b.end || b.isCut) {
			return true, err
		}
	}
	return false, nil
}

// sound reports whether a block is intact.
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

// vouch verifies that a damaged block has the known layout: a record of its stream matches its hash, whose key includes
// the names of stream and subject. If vouch returns an error, the block may not be changed, nor its records reported as
// lost.
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

// vouches reports whether a record of the block matches its hash.
func (b *examined) vouches() bool {
	return len(b.records) > 0 || slices.ContainsFunc(b.gaps, func(g natsfile.Gap) bool { return g.Taken })
}

// between finds the records that are missing between a block that ends with an intact record, at last, and the next
// block. A server discards the end of a damaged block and does not report it at later starts.
func (x *examination) between(b *examined, last events.Offset) error {
	if b.next == 0 || last == 0 {
		return nil
	}
	seq, err := natsfile.Begin(natsfile.Path(b.msgs, b.next))
	first := events.Offset(seq)
	if err != nil || first > last+maxBlockRecords {
		return err // the next block begins with a damaged record
	}
	x.lost = append(x.lost, unknown(x.known, last+1, first)...)
	return nil
}

// maxBlockRecords exceeds the number of records in any block.
const maxBlockRecords = 1 << 20

// examined is a block that is being checked.
type examined struct {
	name, msgs   string
	number, next int  // next is 0 for the last block of the stream
	end          bool // the block is the end of the log
	isCut        bool // the block was cut, and the index removed
	data         []byte
	records      []natsfile.Record
	gaps         []natsfile.Gap
}

func (b *examined) read() (err error) {
	if b.data, err = natsfile.Load(natsfile.Path(b.msgs, b.number), nil); err == nil {
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

// behind returns the offset of the first intact record behind a gap, in the block or the next one.
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

// block repairs a block as far as possible. If the server will discard records of the block, block copies it and notes
// them as lost. It reports whether the server will read the stream again, if the block is the stream's last.
func (x *examination) block(b *examined, reread bool) (again bool, err error) {
	if n := len(b.records); n > 0 {
		last := b.records[n-1]
		x.seen = max(x.seen, events.Offset(last.Seq))
		if last.End == len(b.data) { // otherwise the damage at the end of the block reaches to the next one
			if err := x.between(b, events.Offset(last.Seq)); err != nil {
				return false, err
			}
		}
	}
	if len(b.gaps) > 0 {
		if err := x.mend(b); err != nil {
			return false, err
		}
	}
	for _, g := range b.gaps {
		if g.Taken { // the server keeps it, under another subject
			x.note(b, nil, g, events.Offset(g.Seq), events.Offset(g.Seq))
		}
	}
	if !reread {
		if err := x.straighten(b); err != nil {
			return false, err
		}
	}
	i := slices.IndexFunc(b.gaps, func(g natsfile.Gap) bool {
		_, _, framed := x.span(b, g)
		return !g.Taken && (reread || g.Misleading || !framed)
	})
	if i < 0 {
		return slices.ContainsFunc(b.gaps, func(g natsfile.Gap) bool { return g.End == len(b.data) }), nil
	}
	from, upto, torn := x.extent(b, b.gaps[i])
	if torn && (reread || !b.gaps[i].Misleading) {
		return false, nil
	}
	if err := x.vouch(b); err != nil {
		return false, err
	}
	if !torn {
		x.note(b, b.records, b.gaps[i], from, upto)
	}
	if err := x.keep(b); err != nil {
		return false, err
	}
	if reread {
		return false, nil
	}
	if err := x.store(); err != nil {
		return false, err
	}
	if err := x.close(); err != nil {
		return false, err
	}
	return false, b.cut(b.gaps[i].Begin)
}

// extent returns the offsets that are lost with a damaged record: its own and all behind it in the block. torn reports
// that the record was incomplete when the process died or the power failed, and was never acknowledged.
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

// firstLost returns the offset of the damaged record, which follows the last intact one.
func (x *examination) firstLost(b *examined, gap natsfile.Gap) events.Offset {
	for _, r := range slices.Backward(b.records) {
		if r.Begin < gap.Begin {
			return events.Offset(r.Seq) + 1
		}
	}
	for number := b.number - 1; number > 0; number-- {
		before, err := b.beside(number)
		if err != nil {
			break
		}
		if n := len(before.records); n > 0 {
			return events.Offset(before.records[n-1].Seq) + 1
		}
	}
	if first, err := natsfile.FirstSequence(x.dir, b.name); err == nil {
		return events.Offset(first) // the stream begins here
	}
	if len(b.records) > 0 {
		return events.Offset(b.records[0].Seq) - 1
	}
	return x.durable
}

// note adds the offsets from..upto to the lost records, with the subjects that can still be read.
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

// leave notes the records that the server keeps and cannot read. With an index from before the damage, the server still
// counts them.
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

// subjectOf returns the subject of a damaged record. Flipped bits may have turned it into the name of another subject,
// so without confirmation by the rest of the record the result is "".
func (b *examined) subjectOf(gap natsfile.Gap) string {
	sub, err := events.ParseNATS(gap.Subject)
	isSure := gap.Bit >= 0 || gap.Taken // the record matches its hash
	if err != nil || !isSure && !bytes.Contains(b.data[gap.Begin:gap.End], []byte("ce-subject: "+sub.String()+"\r\n")) {
		return ""
	}
	return gap.Subject
}

// keep copies a block to the folder for damaged blocks, which the server does not use.
func (x *examination) keep(b *examined) error {
	for n := 0; ; n++ {
		kept := filepath.Join(storedir.DamagedDir(x.dir), fmt.Sprintf("%s-%d.blk", b.name, b.number))
		if n > 0 {
			kept += "." + strconv.Itoa(n)
		}
		before, err := os.ReadFile(kept)
		if err == nil && !bytes.Equal(before, b.data) {
			continue // a copy from another time
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		x.kept = append(x.kept, kept)
		return durable.Replace(kept, b.data, 0o600, durable.WithSync)
	}
}

// reportDamage logs the findings, and adds the lost records to the list.
func (s *Server) reportDamage(x *examination) error {
	if x.mended > 0 {
		s.logger.Error("flipped bits in the store were corrected: the disk or the memory may be failing",
			"dir", s.dir, "bits", x.mended, "kept", x.kept)
	}
	if len(x.lost) == 0 {
		return nil
	}
	s.logger.Error("the store is damaged: tally verify lists the lost records, and the damaged blocks are kept",
		"dir", s.dir, "records", len(x.lost), "kept", x.kept)
	return s.found.store(x.lost)
}

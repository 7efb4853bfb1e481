package storecopy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/backup"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
)

// Backup is a backup of a store as the original of a copy. Its blocks are read where they are: nothing is restored.
type Backup struct {
	dir      string
	manifest backup.Manifest
	streams  []backedStream // oldest first
}

// backedStream is a stream of the log in a backup.
type backedStream struct {
	name   string
	first  events.Offset // the lowest possible offset
	blocks []backedBlock // in their order
}

type backedBlock struct {
	number int
	file   backup.File
}

// maxBlock bounds the size of a block that is read, in bytes. The server begins another one long before.
const maxBlock = 256 << 20

// OpenBackup opens a backup of a folder by its manifest.
func OpenBackup(ctx context.Context, dir string, m backup.Manifest) (*Backup, error) {
	for _, v := range m.Servers {
		if !natsfile.Known(v) {
			return nil, &storedir.UnknownServerError{Dir: dir, Version: v}
		}
	}
	b := &Backup{dir: dir, manifest: m}
	for _, f := range m.Files {
		stream, name, ok := streamFile(f.Name)
		if !ok {
			continue
		}
		i := slices.IndexFunc(b.streams, func(s backedStream) bool { return s.name == stream })
		if i < 0 {
			i = len(b.streams)
			b.streams = append(b.streams, backedStream{name: stream, first: 1})
		}
		switch number, isBlock := blockNumber(name); {
		case isBlock && f.Size() > maxBlock:
			return nil, fmt.Errorf("backup %s: %s has %d bytes: no block is that large", m.Name, f.Name, f.Size())
		case isBlock:
			b.streams[i].blocks = append(b.streams[i].blocks, backedBlock{number, f})
		case name == natsfile.MetaFile:
			first, err := b.firstOf(ctx, f)
			if err != nil {
				return nil, err
			}
			b.streams[i].first = first
		}
	}
	slices.SortFunc(b.streams, func(a, b backedStream) int {
		return cmp.Compare(storedir.StreamNumber(a.name), storedir.StreamNumber(b.name))
	})
	for _, s := range b.streams {
		slices.SortFunc(s.blocks, func(a, b backedBlock) int { return cmp.Compare(a.number, b.number) })
	}
	return b, nil
}

// streamFile returns the stream of the log that a file of a store belongs to, and the file's path in the stream's folder.
func streamFile(name string) (stream, file string, ok bool) {
	const folder = natsfile.Folder + "/$G/streams/"
	rest, ok := strings.CutPrefix(name, folder)
	stream, file, cut := strings.Cut(rest, "/")
	return stream, file, ok && cut && storedir.StreamNumber(stream) > 0
}

func blockNumber(file string) (number int, ok bool) {
	if path.Dir(file) != "msgs" {
		return 0, false
	}
	digits, ok := strings.CutSuffix(path.Base(file), natsfile.Layout.Block)
	number, err := strconv.Atoi(digits)
	return number, ok && err == nil
}

// firstOf returns the lowest offset of a stream, by its description.
func (b *Backup) firstOf(ctx context.Context, f backup.File) (events.Offset, error) {
	const largest = 1 << 20
	if f.Size() > largest {
		return 0, fmt.Errorf("backup %s: %s has %d bytes: no description is that large", b.manifest.Name, f.Name, f.Size())
	}
	text, err := b.manifest.Content(ctx, b.dir, f)
	if err != nil {
		return 0, err
	}
	var meta struct {
		First events.Offset `json:"first_seq"`
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return 0, fmt.Errorf("backup %s: %s: %w", b.manifest.Name, f.Name, err)
	}
	return max(meta.First, 1), nil
}

// Durable implements Source.
func (b *Backup) Durable(context.Context) (events.Offset, error) {
	return events.Offset(b.manifest.Durable), nil
}

// Record implements Source.
func (b *Backup) Record(ctx context.Context, at events.Offset) (events.Record, error) {
	if at == 0 || at > events.Offset(b.manifest.Durable) {
		return events.Record{}, fmt.Errorf("record %v of backup %s: %w", at, b.manifest.Name, events.ErrNotFound)
	}
	for rec, err := range b.Read(ctx, events.Range{After: at - 1, Upto: at}) {
		return rec, err
	}
	return events.Record{}, &events.DamageError{Offset: at}
}

// Read implements Source. It ignores all of the range but After and Upto. The records of a content that is damaged or
// missing in the backup count as lost.
func (b *Backup) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		upto := events.Offset(b.manifest.Durable)
		if r.Upto != 0 {
			upto = min(upto, r.Upto)
		}
		at, over := r.After, false
		// give yields the record at an offset, behind the lost ones. It returns false at the end.
		give := func(next events.Offset, rec events.Record, err error) bool {
			for at++; at < next && !over; at++ {
				over = !yield(events.Record{}, &events.DamageError{Offset: at})
			}
			over = over || !yield(rec, err) || at >= upto
			return !over
		}
		for i, s := range b.streams {
			if i+1 < len(b.streams) && b.streams[i+1].first <= at+1 {
				continue // all of it comes before
			}
			for _, block := range s.blocks {
				if over || at >= upto {
					return
				}
				err := b.block(ctx, s.name, block, func(m natsfile.Message) bool {
					offset := events.Offset(m.Seq)
					if offset <= at {
						return true
					}
					if offset > upto {
						return false
					}
					rec, err := log.DecodeStored(m.Subject, m.Header, m.Data, offset, time.Unix(0, m.Time).UTC())
					return give(offset, rec, err)
				})
				if err != nil {
					yield(events.Record{}, err)
					return
				}
			}
		}
		if at < upto && !over {
			give(upto, events.Record{}, &events.DamageError{Offset: upto})
		}
	}
}

// block calls visit for the messages of a block until it returns false.
func (b *Backup) block(ctx context.Context, stream string, block backedBlock, visit func(natsfile.Message) bool) error {
	data, err := b.manifest.Content(ctx, b.dir, block.file)
	if _, damaged := errors.AsType[*backup.DamageError](err); damaged {
		return nil // the missing offsets show which records are lost
	}
	more := true
	natsfile.VisitMessages(stream, block.number, data, func(m natsfile.Message) { more = more && visit(m) })
	return err
}

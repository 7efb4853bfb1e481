package catalog

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// stripSchema defines the table of strips. A strip shows a session as a picture, so the rows are sums: one for 64 offsets
// of the log.
const stripSchema = `
CREATE TABLE strip{set}(
	namespace TEXT NOT NULL, session TEXT NOT NULL, block INTEGER NOT NULL,
	records INTEGER NOT NULL, user INTEGER NOT NULL, model INTEGER NOT NULL, tool INTEGER NOT NULL, error INTEGER NOT NULL, bytes INTEGER NOT NULL,
	at TEXT NOT NULL, PRIMARY KEY(namespace, session, block)) WITHOUT ROWID;
`

// StripOffsets is the number of offsets of a block of a strip.
const StripOffsets = 64

// StripBlock is the sum of what a session has at consecutive offsets, in effect or not. Turns are those that count as
// turns: without the lines of an agent's own log.
type StripBlock struct {
	First   events.Offset    // of the block; the last one is 63 higher
	Records int              // of any type
	User    int              // turns with words of a user
	Model   int              // turns with words of a model
	Tool    int              // calls of tools
	Error   int              // results of calls that failed
	Bytes   int64            // of the turns
	At      events.Timestamp // the latest time of a record
}

// strip holds the sums of the next commit.
type strip map[stripKey]*StripBlock

type stripKey struct {
	subject events.Subject
	block   int64
}

// compare orders rows as the table does.
func (k stripKey) compare(o stripKey) int {
	return cmp.Or(cmp.Compare(k.subject.Namespace, o.subject.Namespace), cmp.Compare(k.subject.ID, o.subject.ID), cmp.Compare(k.block, o.block))
}

// of returns the sums of an offset's block.
func (s *strip) of(sub events.Subject, at events.Offset) *StripBlock {
	if *s == nil {
		*s = make(strip)
	}
	key := stripKey{sub, int64(at / StripOffsets)}
	b := (*s)[key]
	if b == nil {
		b = new(StripBlock)
		(*s)[key] = b
	}
	return b
}

// record counts a record.
func (s *strip) record(f projector.Fact) {
	b := s.of(f.Subject, f.Offset)
	b.Records++
	b.At = max(b.At, f.Happened())
}

// turn counts a turn.
func (s *strip) turn(t turnRow, said projector.Said) {
	b := s.of(t.subject, t.offset)
	b.Bytes += int64(t.bytes)
	for role := range strings.FieldsSeq(said.Roles) {
		switch role {
		case "user":
			b.User++
		case "assistant":
			b.Model++
		}
	}
	for _, use := range said.Tools {
		if use.Error {
			b.Error++
		} else {
			b.Tool++
		}
	}
}

// store writes the sums.
func (s strip) store(ctx context.Context, f *viewFile) error {
	for _, key := range slices.SortedFunc(maps.Keys(s), stripKey.compare) {
		b := s[key]
		if err := f.run(ctx, `INSERT INTO strip{set} VALUES(?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET records=records+excluded.records,
			user=user+excluded.user, model=model+excluded.model, tool=tool+excluded.tool, error=error+excluded.error, bytes=bytes+excluded.bytes, at=max(at, excluded.at)`,
			key.subject.Namespace, key.subject.ID, key.block, b.Records, b.User, b.Model, b.Tool, b.Error, b.Bytes, string(b.At)); err != nil {
			return err
		}
	}
	return nil
}

// Strip yields the blocks of a session, in order, without those that have no record.
func (a Activity) Strip(ctx context.Context, namespace, session string) iter.Seq2[StripBlock, error] {
	return func(yield func(StripBlock, error) bool) {
		rows, err := a.db.QueryContext(ctx, `SELECT block, records, user, model, tool, error, bytes, at FROM strip
			WHERE namespace=? AND session=? ORDER BY block`, namespace, session)
		err = each(rows, err, func() error {
			var b StripBlock
			if err := rows.Scan(offset(&b.First), &b.Records, &b.User, &b.Model, &b.Tool, &b.Error, &b.Bytes, &b.At); err != nil {
				return err
			}
			if b.First *= StripOffsets; !yield(b, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(StripBlock{}, a.wrap(err))
		}
	}
}

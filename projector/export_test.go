package projector

import (
	"context"
	"encoding/binary"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/snapshot"
)

// DocumentFold is documentFold.
const DocumentFold = documentFold

// Prune is prune.
var Prune = prune

// SetChunks sets the number of records of a chunk, and of chunks of an index.
func (l *Loader) SetChunks(records, fan int) *Loader {
	l.sizes = sizes{records: records, bytes: standardSizes.bytes, fan: fan}
	return l
}

// SetChunkBytes sets the bytes of data after which a chunk ends.
func (l *Loader) SetChunkBytes(n int64) *Loader {
	l.sizes.bytes = n
	return l
}

// SetChunks sets the number of records of a chunk, and of chunks of an index.
func (k *Snapshotter) SetChunks(records, fan int) *Snapshotter {
	k.sizes = sizes{records: records, bytes: standardSizes.bytes, fan: fan}
	return k
}

// SetMost sets the maximum number of tracked changed sessions.
func (k *Snapshotter) SetMost(n int) *Snapshotter {
	k.limit = n
	return k
}

// Head stores the chunks of a session as of an offset, and returns the head.
func (l *Loader) Head(ctx context.Context, sub events.Subject, at events.Offset, kept string) (snapshot.Snapshot, error) {
	return l.head(ctx, sub, at, kept, func(ctx context.Context, s snapshot.Snapshot) error { return putTo(ctx, l.Snapshots, s) })
}

// Resolve is Outline.Resolve for a session with all of its turns.
func (l *Loader) Resolve(ctx context.Context, s *Session, p Position) (events.Offset, error) {
	return l.positionOf(ctx, s, p)
}

// ChangesOf is Changes for threads with all of their turns.
func ChangesOf(from, to Threads) (leaves, returns []TurnAt) {
	return missingIn(to, from), missingIn(from, to)
}

// DecodeHead decodes a head. The function that it returns folds a record onto it and encodes the result.
func (l *Loader) DecodeHead(data []byte) (again func(events.Record) ([]byte, error), err error) {
	s, err := decodeState(data, standardSizes)
	if err != nil {
		return nil, err
	}
	return func(rec events.Record) ([]byte, error) {
		s.history.older = &pager{pages: &chunkPages{context.Background(), l, s}}
		if _, err := s.history.Live(s.offset()); err != nil {
			return nil, err
		}
		if err := s.apply(Decode(rec), func() error { return nil }); err != nil {
			return nil, err
		}
		return s.encode()
	}, nil
}

// Encode encodes a whole session: equal sessions produce equal bytes.
func (s *Session) Encode() ([]byte, error) {
	var h []byte
	for n := range s.History.Blocks() {
		h = append(h, s.History.Block(n)...)
	}
	h = binary.AppendVarint(append(h, s.History.Rest()...), int64(s.History.First()))
	lengths := make(map[string]int)
	for i, name := range s.History.names {
		lengths[name] = s.History.lengths.of(i)
	}
	return rawjson.Marshal(struct {
		Subject string
		History []byte
		Lengths map[string]int
		Live    []Interval
		Stale   []events.Offset
		Threads Threads
		Ledger  *Ledger
	}{s.Subject.NATS(), h, lengths, s.History.Live(s.Offset()), s.History.Stale(), s.Threads, s.Ledger})
}

// SetCheckAgain replaces the bound for data that are named again, for one test.
func SetCheckAgain(t interface{ Cleanup(func()) }, check func(sum string, again, distinct int64) error) {
	old := checkAgain
	checkAgain = check
	t.Cleanup(func() { checkAgain = old })
}

package projector

import (
	"context"
	"encoding/binary"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/snapshot"
)

// SetChunks makes chunks of so many records, and indexes of so many chunks.
func (l *Loader) SetChunks(records, fan int) *Loader {
	l.sizes = sizes{records: records, bytes: standardSizes.bytes, fan: fan}
	return l
}

// SetChunkBytes ends a chunk once its records have so many bytes of data.
func (l *Loader) SetChunkBytes(n int64) *Loader {
	l.sizes.bytes = n
	return l
}

// SetChunks makes chunks of so many records, and indexes of so many chunks.
func (k *Snapshotter) SetChunks(records, fan int) *Snapshotter {
	k.sizes = sizes{records: records, bytes: standardSizes.bytes, fan: fan}
	return k
}

// SetMost bounds the sessions of which the keeper knows that they changed.
func (k *Snapshotter) SetMost(n int) *Snapshotter {
	k.limit = n
	return k
}

// Head stores the chunks of a session as of an offset, and gives the head.
func (l *Loader) Head(ctx context.Context, sub events.Subject, at events.Offset, kept string) (snapshot.Snapshot, error) {
	return l.head(ctx, sub, at, kept, l.put)
}

// DecodeHead reads a head. The function that it gives folds on and writes it again.
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

// Encode writes all of a session: equal sessions give equal bytes.
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
		Late    []events.Offset
		Threads Threads
		Ledger  *Ledger
	}{s.Subject.NATS(), h, lengths, s.History.Live(s.Offset()), s.History.Late(), s.Threads, s.Ledger})
}

// SetCheckAgain replaces the bound of data that are named again, for one test.
func SetCheckAgain(t interface{ Cleanup(func()) }, check func(sum string, again, distinct int64) error) {
	old := checkAgain
	checkAgain = check
	t.Cleanup(func() { checkAgain = old })
}

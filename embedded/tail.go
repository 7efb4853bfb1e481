package embedded

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
)

// nameLost compares the first and last records of the opened streams with the durable offset. It adds the durable
// records before, between and behind the streams to the list of lost records, before any process reads. Records missing
// inside a stream are found by reads, which check the numbers. After a crash in nameLost, the next start finds the same
// records.
func (s *Server) nameLost(ctx context.Context) error {
	open, err := s.streams()
	if err != nil {
		return err
	}
	slices.SortFunc(open, func(a, b server.StreamDetail) int {
		return cmp.Compare(storedir.StreamNumber(a.Name), storedir.StreamNumber(b.Name))
	})
	var lost []log.Hole
	at := events.Offset(1) // the next expected offset
	for _, stream := range open {
		if storedir.StreamNumber(stream.Name) == 0 || stream.State.Msgs == 0 {
			continue
		}
		lost = append(lost, unknown(s.holes, at, events.Offset(stream.State.FirstSeq))...)
		last, err := s.lastThere(ctx, stream)
		if err != nil {
			return err
		}
		at = last + 1
	}
	lost = append(lost, unknown(s.holes, at, s.durable.get()+1)...)
	if len(lost) == 0 {
		return nil
	}
	s.logger.Error("the store is damaged: acknowledged records are missing at the ends of its streams; tally verify lists them",
		"dir", s.dir, "records", len(lost), "first", lost[0].Offset)
	if err := s.found.store(lost); err != nil {
		return err
	}
	s.holes, err = storedir.ReadHoles(s.dir)
	return err
}

// lastThere returns the offset of the last record in a stream. With an older index, the server may still count later
// records that are lost.
func (s *Server) lastThere(ctx context.Context, stream server.StreamDetail) (events.Offset, error) {
	last := stream.State.LastSeq
	if n := stream.State.NumDeleted; n == 0 || n > maxBlockRecords { // such a number means a wrong sequence: see misled
		return events.Offset(last), nil
	}
	js, err := jetstream.New(s.conns[1])
	if err != nil {
		return 0, err
	}
	found, err := js.Stream(ctx, stream.Name)
	if err != nil {
		return 0, fmt.Errorf("look at %s: %v", stream.Name, err)
	}
	info, err := found.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return 0, fmt.Errorf("look at %s: %v", stream.Name, err)
	}
	for _, deleted := range slices.Backward(slices.Sorted(slices.Values(info.State.Deleted))) {
		if deleted != last {
			break
		}
		last--
	}
	return events.Offset(last), nil
}

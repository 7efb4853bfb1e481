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

// nameLost compares what the server has, now that it opened its streams, with what was
// acknowledged as durable: whatever became of the files, it says where each stream begins
// and ends. What lies before, between and behind is written down as lost before anybody
// reads. (What is missing inside a stream is found by reads, which count.) A crash before
// that changes nothing: the next start finds the same.
func (s *Server) nameLost(ctx context.Context) error {
	open, err := s.streams()
	if err != nil {
		return err
	}
	slices.SortFunc(open, func(a, b server.StreamDetail) int {
		return cmp.Compare(storedir.StreamNumber(a.Name), storedir.StreamNumber(b.Name))
	})
	var lost []log.Hole
	at := events.Offset(1) // that is to come next
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
	s.logger.Error("the store is damaged: records that were acknowledged are gone from the ends of its streams; verify names them",
		"dir", s.dir, "records", len(lost), "first", lost[0].Offset)
	if err := storedir.AddHoles(s.dir, lost); err != nil {
		return err
	}
	s.holes, err = storedir.ReadHoles(s.dir)
	return err
}

// lastThere gives the last record that a stream has: by an index that it had, the server
// may know of later ones that are gone.
func (s *Server) lastThere(ctx context.Context, stream server.StreamDetail) (events.Offset, error) {
	last := stream.State.LastSeq
	if n := stream.State.NumDeleted; n == 0 || n > mostBetween { // so many are no loss: see misled
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

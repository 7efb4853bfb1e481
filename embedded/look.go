package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/quota"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/snapshot"
)

// errNotAtRest reports that a store has to be opened with its server.
var errNotAtRest = errors.New("the store is not at rest")

// look opens a store for reading, without a server and without its lock. Each owner replaces the mark of the last
// orderly stop before it stores anything. So the files are those of that stop if the mark is the same before and after
// look has read their end. After that, owners only add to them.
//
// If look fails, the caller opens the store with its server, which repairs it or reports the problem.
func look(ctx context.Context, o Options, c config.Config, place storedir.Info) (*tally.Store, error) {
	mark, err := storedir.LoadMark(c.Store)
	if err != nil {
		return nil, err
	}
	streams, err := storedir.StreamFolders(c.Store)
	if err != nil {
		return nil, err
	}
	_, err = os.Lstat(filepath.Join(c.Store, storedir.OwnerFile))
	switch {
	case err == nil || !mark.Clean:
		return nil, fmt.Errorf("%w: a process has it open, or was killed", errNotAtRest)
	case len(place.Lost) > 0 || place.Others || len(place.Unknown(serverVersion)) > 0 || !slices.Equal(streams, mark.Streams):
		return nil, fmt.Errorf("%w: its owner has to look after it", errNotAtRest)
	case erasure.Pending(c.Store):
		return nil, fmt.Errorf("%w: an erasure is not complete", errNotAtRest)
	case o.Own || o.Listen != nil || len(c.Trees) > 0:
		return nil, fmt.Errorf("%w: it has to be served", errNotAtRest)
	}
	if err := storedir.Writable(c.Store); err != nil {
		return nil, err // a notice is due
	}
	l, err := log.OpenFiles(ctx, streams, place.Durable, vetted, log.Config{Logger: o.Logger, MinDurability: c.MinDurability, Host: log.Host{
		Durability: log.Durable, Segments: log.Segments{Dir: storedir.SegmentsDir(c.Store), Blocks: natsfile.Streams(c.Store)},
	}})
	if err != nil {
		return nil, err
	}
	after, err := storedir.LoadMark(c.Store)
	if err == nil && !reflect.DeepEqual(mark, after) {
		err = fmt.Errorf("%w: a process has opened it", errNotAtRest)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	st := o.store(c)
	st.Snapshots = pastSnapshots{snapshot.NewFiles(filepath.Join(c.Store, "snapshots")), place.Durable}
	readFromCatalog(&st, c.Store)
	st.Host.Shown = func(ctx context.Context, view string, at events.Offset) error {
		s, err := catalog.StandingOf(ctx, c.Store, view)
		if err != nil || s.Cursor.Offset < at {
			return fmt.Errorf("view %s: %w: it does not show everything", view, log.ErrNeedsServer)
		}
		return nil
	}
	o.bring(&st, false)
	uses(&st, l, func() (quota.Limits, error) { return quota.Load(c.Store) }, nil)
	s, err := tally.Open(ctx, l, st)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return s, nil
}

// vetted is the default of ServerOptions.VetBytes.
const vetted = 32 << 20

// pastSnapshots shows the snapshots up to an offset and writes none. Later ones are by an owner that came meanwhile: a
// loader that does not know their events would remove them.
type pastSnapshots struct {
	snapshot.Store
	upto events.Offset
}

func (s pastSnapshots) List(ctx context.Context, sub events.Subject, fold string) ([]snapshot.Meta, error) {
	list, err := s.Store.List(ctx, sub, fold)
	return slices.DeleteFunc(list, func(m snapshot.Meta) bool { return m.Offset > s.upto }), err
}

func (s pastSnapshots) Put(context.Context, snapshot.Snapshot) error { return nil }

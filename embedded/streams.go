package embedded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/storedir"
)

// mendMeta makes up for a crash in the middle of a change of a stream, and for damage
// to what describes it. The server writes meta.inf and then meta.sum, each whole, and
// does not take a stream back for which they do not agree. Then what stood there
// before is put back: whatever the change was, it is made again. Nothing was ever
// stored in a stream whose creation was cut off.
func (x *examination) mendMeta(name string) error {
	dir := x.dir
	stream := filepath.Join(natsfile.Streams(dir), name)
	meta, err := os.ReadFile(filepath.Join(stream, natsfile.MetaFile))
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(stream, natsfile.SumFile))
	switch {
	case err == nil && string(sum) == natsfile.Checksum(name, meta):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	kept, keptErr := os.ReadFile(storedir.MetaCopy(dir, name))
	switch {
	case keptErr == nil && json.Valid(kept):
		meta = kept
	case err == nil: // they do not agree, and there is no copy
		return nil // the server will say so
	}
	if err := x.prove(); err != nil {
		return err
	}
	if err := durable.Replace(filepath.Join(stream, natsfile.MetaFile), meta, 0o600, durable.WithSync); err != nil {
		return err
	}
	return durable.Replace(filepath.Join(stream, natsfile.SumFile), []byte(natsfile.Checksum(name, meta)), 0o600, durable.WithSync)
}

// setUnbornAside takes a stream out of the server's way whose creation a power cut ended:
// its description is there by name only. Nothing was ever acknowledged in it, or the
// mark, which is written after a sync, would name it.
func (x *examination) setUnbornAside(name string, m storedir.Mark) error {
	dir := x.dir
	if slices.Contains(m.Streams, name) {
		return nil
	}
	meta, err := os.ReadFile(filepath.Join(natsfile.Streams(dir), name, natsfile.MetaFile))
	if err != nil || json.Valid(meta) {
		return err
	}
	if _, err := os.Stat(storedir.MetaCopy(dir, name)); err == nil {
		return nil // it was described once
	}
	if err := x.prove(); err != nil {
		return err
	}
	for n := 1; ; n++ {
		aside := filepath.Join(storedir.DamagedDir(dir), fmt.Sprintf("%s.%d", name, n))
		if _, err := os.Stat(aside); errors.Is(err, fs.ErrNotExist) {
			return os.Rename(filepath.Join(natsfile.Streams(dir), name), aside)
		}
	}
}

// copyMeta keeps a copy of what describes each stream.
func copyMeta(dir string) error {
	names, err := storedir.StreamFolders(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(storedir.SegmentsDir(dir), 0o700); err != nil {
		return err
	}
	for _, name := range names {
		meta, err := os.ReadFile(filepath.Join(natsfile.Streams(dir), name, natsfile.MetaFile))
		if err != nil {
			return err
		}
		if kept, err := os.ReadFile(storedir.MetaCopy(dir, name)); err == nil && bytes.Equal(kept, meta) {
			continue
		}
		if err := durable.Replace(storedir.MetaCopy(dir, name), meta, 0o600, durable.NoSync); err != nil {
			return err
		}
	}
	return nil
}

// unindexed gives the bytes of the full streams that the server would read again
// after a crash.
func unindexed(dir string) (total int64, err error) {
	names, err := storedir.StreamFolders(dir)
	if err != nil {
		return 0, err
	}
	for _, name := range names[:max(0, len(names)-1)] {
		n, err := natsfile.Unindexed(dir, name)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// atRest is called while nothing is being appended. If a crash now would make the
// server read more than so many bytes of full segments again, it closes its streams,
// which writes their indexes, and opens them.
func (s *Server) atRest(most uint64) error {
	// The mark names a stream only when it is on disk: from then on it must come back.
	if s.sync {
		if err := wholeTree(s.dir); err != nil {
			return err
		}
	}
	if err := errors.Join(copyMeta(s.dir), s.writeMark(false)); err != nil {
		return err
	}
	n, err := unindexed(s.dir)
	if err != nil || n <= int64(most) {
		return err
	}
	return s.reopenStreams()
}

// reopenStreams closes all streams and opens them again. Connections stay; what is
// asked meanwhile is told that there is no stream, and asks again.
func (s *Server) reopenStreams() error {
	began := time.Now()
	if err := s.closeStreams(); err != nil {
		return err
	}
	if err := s.openStreams(); err != nil {
		return err
	}
	s.logger.Debug("the server's streams were closed and opened", "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// closeStreams has the server close all streams, which writes their indexes.
func (s *Server) closeStreams() error {
	if !s.nats.JetStreamEnabled() {
		return nil // it has closed them: see off
	}
	if err := s.nats.GlobalAccount().DisableJetStream(); err != nil {
		return fmt.Errorf("embedded: close streams: %v", err)
	}
	return nil
}

// openTries bounds how often streams are opened that did not all come back.
const openTries = 5

// openStreams has it open those that it finds. It is no error for the server if one
// cannot be opened: so they are counted.
func (s *Server) openStreams() error {
	want, err := storedir.StreamFolders(s.dir)
	if err == nil {
		err = s.enableStreams()
	}
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		if err := s.nats.GlobalAccount().EnableJetStream(nil, nil); err != nil {
			return fmt.Errorf("embedded: open streams: %v", err)
		}
		back, err := s.streams()
		if err != nil {
			return err
		}
		missing := without(want, back)
		if len(missing) == 0 {
			return nil
		}
		if try == openTries {
			return fmt.Errorf("embedded: open streams: %v did not come back", missing)
		}
		s.logger.Warn("streams did not come back at once", "streams", missing)
		time.Sleep(10 * time.Millisecond << try)
		if err := s.closeStreams(); err != nil {
			return err
		}
	}
}

// enableStreams has the server keep streams again after it has given that up.
func (s *Server) enableStreams() error {
	if s.nats.JetStreamEnabled() {
		return nil
	}
	c := s.stored
	if err := s.nats.EnableJetStream(&c); err != nil {
		return fmt.Errorf("embedded: open streams: %v", err)
	}
	_ = s.nats.SystemAccount().SetServiceExportResponseThreshold(serverAPI, forgetAnswers) // as at the start
	return nil
}

// streams gives the streams that are open.
func (s *Server) streams() (open []server.StreamDetail, err error) {
	js, err := s.nats.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return nil, err
	}
	for _, account := range js.AccountDetails {
		open = append(open, account.Streams...)
	}
	return open, nil
}

// without gives those of some names that are not open.
func without(names []string, open []server.StreamDetail) (missing []string) {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(open, func(s server.StreamDetail) bool { return s.Name == name })
	})
}

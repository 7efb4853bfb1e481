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

// mendMeta repairs a stream's description after damage, or after a crash during a change of the stream. The server
// writes meta.inf and then meta.sum, each atomically, and rejects a stream whose files disagree. mendMeta restores the
// previous description; the log makes the interrupted change again. A stream whose creation was cut off has no
// messages.
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
	case err == nil: // they disagree, and there is no copy
		return nil // the server reports it
	}
	if err := x.prove(); err != nil {
		return err
	}
	if err := durable.Replace(filepath.Join(stream, natsfile.MetaFile), meta, 0o600, durable.WithSync); err != nil {
		return err
	}
	return durable.Replace(filepath.Join(stream, natsfile.SumFile), []byte(natsfile.Checksum(name, meta)), 0o600, durable.WithSync)
}

// setUnbornAside moves a stream out of the server's way if a power cut interrupted its creation: the file of its
// description exists without its content. Nothing was acknowledged in the stream: otherwise the mark, which is written
// after a sync, would name it.
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
		return nil // the stream had a description
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

// copyMeta keeps a copy of each stream's description.
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

// unindexed returns how many bytes of the full streams the server would read again after a crash.
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

// atRest is called while no append is running. If a crash now would make the server read more than maxReread bytes of
// full segments again, atRest closes the server's streams, which writes their indexes, and opens them again.
func (s *Server) atRest(maxReread uint64) error {
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
	if err != nil || n <= int64(maxReread) {
		return err
	}
	return s.reopenStreams()
}

// reopenStreams closes all streams and opens them again. Connections stay open. Requests meanwhile get the error that
// there is no stream, and the clients repeat them.
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

// closeStreams closes all streams of the server, which writes their indexes.
func (s *Server) closeStreams() error {
	if !s.nats.JetStreamEnabled() {
		return nil // the server has closed them itself: see off
	}
	if err := s.nats.GlobalAccount().DisableJetStream(); err != nil {
		return fmt.Errorf("embedded: close streams: %v", err)
	}
	return nil
}

// maxOpenAttempts bounds the attempts to open the streams, if not all of them come back.
const maxOpenAttempts = 5

// openStreams opens all streams of the server. The server reports no error for a stream that it cannot open, so
// openStreams compares the open streams with the folders.
func (s *Server) openStreams() error {
	want, err := storedir.StreamFolders(s.dir)
	if err == nil {
		err = s.enableStreams()
	}
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
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
		if attempt == maxOpenAttempts {
			return fmt.Errorf("embedded: open streams: %v did not come back", missing)
		}
		s.logger.Warn("streams did not come back at once", "streams", missing)
		time.Sleep(10 * time.Millisecond << attempt)
		if err := s.closeStreams(); err != nil {
			return err
		}
	}
}

// enableStreams enables JetStream again after the server has shut it down.
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

// streams returns the open streams.
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

// without returns the names of streams that are not open.
func without(names []string, open []server.StreamDetail) (missing []string) {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(open, func(s server.StreamDetail) bool { return s.Name == name })
	})
}

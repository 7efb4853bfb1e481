package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
)

// markDirty records in the mark that this process is at work. If the disk is full, the store refuses appends, so that
// the old mark of a clean stop stays true. Reads work, and the store takes appends as soon as there is room.
func (s *Server) markDirty() error {
	err := s.writeMark(false)
	if !isFull(err) {
		return err
	}
	s.unmarked.Store(true)
	s.health.fail(err)
	return nil
}

// takeOver takes the directory's lock and prepares the server's files. It returns the streams that must come back.
func (s *Server) takeOver(o ServerOptions) (expected []string, err error) {
	if o.Dir == "" {
		return nil, errors.New("embedded: start: ServerOptions.Dir is missing")
	}
	if s.dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("embedded: start %s: %w", o.Dir, err)
	}
	if _, err := storedir.Inspect(s.dir); err != nil {
		return nil, startError(s.dir, err)
	}
	if err := storedir.MakePrivate(s.dir); err != nil {
		return nil, startError(s.dir, err)
	}
	lock, err := takeLock(s.dir)
	if err != nil {
		return nil, err
	}
	s.atEnd(lock.Close)               // releases the lock
	err = storedir.RemoveOwner(s.dir) // left by a killed process
	if err == nil {
		err = s.refuseCopy(o)
	}
	if err == nil {
		s.durable, err = openWatermark(s.dir)
	}
	if err == nil {
		s.atEnd(s.durable.close)
		expected, err = s.restore(o.VetBytes)
	}
	if err != nil {
		return nil, startError(s.dir, err)
	}
	s.group = s.sync && s.known && !o.SyncEach && storedir.GroupSyncs(s.dir)
	return expected, nil
}

// refuseCopy refuses an unfinished copy, unless this process is to continue it.
func (s *Server) refuseCopy(o ServerOptions) error {
	err := storedir.Copying(s.dir)
	if _, s.copying = errors.AsType[*log.CopyingError](err); s.copying && o.Copy {
		return nil
	}
	return err
}

// startError adds context to an error of Start. Typed errors that callers act on are returned unchanged.
func startError(dir string, err error) error {
	_, layout := errors.AsType[*LayoutError](err)
	_, ownership := errors.AsType[*OwnershipError](err)
	_, readOnly := errors.AsType[*ReadOnlyError](err)
	_, foreign := errors.AsType[*ForeignError](err)
	switch {
	case layout || ownership || readOnly || foreign || errors.Is(err, log.ErrNewer):
		return err
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("embedded: start %s: %w: %w", dir, log.ErrUnavailable, err)
	}
	return fmt.Errorf("embedded: start %s: %w", dir, err)
}

// restore repairs the server's files so that the server accepts them. Files of unknown versions are left alone.
func (s *Server) restore(vet uint64) (expected []string, err error) {
	m, err := s.readMark()
	if err == nil {
		s.known, err = s.recognise(m)
	}
	if err == nil {
		err = os.MkdirAll(storedir.DamagedDir(s.dir), 0o700)
	}
	if err != nil {
		return nil, err
	}
	s.durable.set(m.Durable)
	s.prove = sync.OnceValue(prove)
	s.found = &findings{dir: s.dir, known: s.known, logger: s.logger}
	s.atEnd(s.found.close)
	if s.known {
		err = s.mendFiles(m, vet)
	} else {
		s.unfamiliar("nats-server " + strings.Join(s.servers, ", ") + " wrote them")
	}
	if errors.Is(err, errOtherLayout) {
		s.unfamiliar(err.Error())
		err = nil
	}
	if err == nil {
		s.holes, err = storedir.ReadHoles(s.dir)
	}
	if err != nil {
		return nil, err
	}
	s.found.known = s.known
	if err := s.eraseAtRest(); err != nil {
		return nil, err
	}
	return expectedStreams(s.dir, m)
}

// inspect logs the losses that the server reports. If an expected stream did not come back, inspect returns a
// *LostStreamError.
func (s *Server) inspect(expected []string) error {
	open, err := s.streams()
	if err != nil {
		return fmt.Errorf("embedded: start %s: %w", s.dir, err)
	}
	for _, stream := range open {
		if lost := stream.State.Lost; lost != nil {
			s.logger.Error("the store lost records: verify it, and restore them from a copy",
				"dir", s.dir, "stream", stream.Name, "records", len(lost.Msgs), "bytes", lost.Bytes)
		}
	}
	missing := without(expected, open)
	if len(missing) > 0 {
		return &LostStreamError{Dir: s.dir, Streams: missing, Said: s.serverLog.complaints()}
	}
	return nil
}

// LostStreamError reports that streams of the log did not come back at a start. Nothing was changed.
type LostStreamError struct {
	Dir     string
	Streams []string
	Said    []string // warnings and errors of the server during the start
}

func (e *LostStreamError) Error() string {
	msg := fmt.Sprintf("embedded: start %s: %s did not come back: keep a copy of the directory, then restore %s from a backup",
		e.Dir, strings.Join(e.Streams, ", "), filepath.Join(e.Dir, "jetstream"))
	if len(e.Said) > 0 {
		msg += " (the server: " + strings.Join(e.Said, "; ") + ")"
	}
	return msg
}

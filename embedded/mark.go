package embedded

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/storedir"
)

// bootID names the time for which the machine has been running. Where the system does not
// say it, every start counts as one after a power cut.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// readMark gives the mark. One that cannot be read says nothing, and is said.
func (s *Server) readMark() (storedir.Mark, error) {
	m, err := storedir.LoadMark(s.dir)
	if storedir.IsDamaged(err) {
		s.logger.Warn("the store's mark is made anew", "dir", s.dir, "error", err)
		return storedir.Mark{}, nil
	}
	return m, err
}

// writeMark writes down which streams there are, and that this process is at work or
// done.
func (s *Server) writeMark(clean bool) error {
	names, err := storedir.StreamFolders(s.dir)
	if err != nil {
		return err
	}
	return storedir.WriteMark(s.dir, storedir.Mark{Streams: names, Boot: bootID(), Clean: clean, Durable: s.durable.get(), Servers: s.servers})
}

// expectedStreams lists the streams that a directory says it has: by its mark, and by
// the server's own folders.
func expectedStreams(dir string, m storedir.Mark) ([]string, error) {
	folders, err := storedir.StreamFolders(dir)
	if err != nil {
		return nil, err
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.Streams, folders)))), nil
}

// watermark keeps the highest durable offset in a file of its own, written in place
// before anybody is told of it. It is not synced: it survives the process, and after
// a power cut it may be an older one.
type watermark struct {
	file *os.File
	mu   sync.Mutex // guards at
	at   events.Offset
}

// openWatermark reads what was written last; nothing, or something damaged, is 0.
func openWatermark(dir string) (*watermark, error) {
	f, err := os.OpenFile(filepath.Join(dir, storedir.WatermarkFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &watermark{file: f, at: storedir.LoadWatermark(dir)}, nil
}

// set moves the watermark on. An error is no reason to stop: the mark is a second
// look at the log, which is safe without.
func (w *watermark) set(at events.Offset) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at > w.at {
		w.at = at
		_, _ = w.file.WriteAt(storedir.WatermarkText(at), 0)
	}
}

// get gives the highest offset that was set, also before.
func (w *watermark) get() events.Offset {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *watermark) close() error { return w.file.Close() }

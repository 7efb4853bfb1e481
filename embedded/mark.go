package embedded

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/storedir"
)

// bootID identifies the current boot of the machine. If the system has no such id, bootID returns "", and every start
// counts as one after a power cut.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// readMark returns the mark. If the file is damaged, readMark logs a warning and returns the zero Mark.
func (s *Server) readMark() (storedir.Mark, error) {
	m, err := storedir.LoadMark(s.dir)
	if storedir.IsDamaged(err) {
		s.logger.Warn("the store's mark is written again", "dir", s.dir, "error", err)
		return storedir.Mark{}, nil
	}
	return m, err
}

// writeMark writes the mark with the current streams. clean says that this process has stopped; otherwise it is at
// work.
func (s *Server) writeMark(clean bool) error {
	names, err := storedir.StreamFolders(s.dir)
	if err != nil {
		return err
	}
	return storedir.WriteMark(s.dir, storedir.Mark{Streams: names, Boot: bootID(), Clean: clean, Durable: s.durable.get(), Servers: s.servers})
}

// expectedStreams lists the streams that the mark or the server's folders name.
func expectedStreams(dir string, m storedir.Mark) ([]string, error) {
	folders, err := storedir.StreamFolders(dir)
	if err != nil {
		return nil, err
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.Streams, folders)))), nil
}

// watermark keeps the highest durable offset in a file, which is written in place before the offset is published. The
// file is not synced: it survives the process, but after a power cut it may have an older offset.
type watermark struct {
	file *os.File
	mu   sync.Mutex // guards at
	at   events.Offset
}

// openWatermark opens the file, and creates it if it is missing. A missing or damaged watermark counts as 0.
func openWatermark(dir string) (*watermark, error) {
	f, err := os.OpenFile(filepath.Join(dir, storedir.WatermarkFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &watermark{file: f, at: storedir.LoadWatermark(dir)}, nil
}

// set raises the watermark; a lower offset has no effect. Write errors are ignored: the watermark is an additional
// check, and the log is safe without it.
func (w *watermark) set(at events.Offset) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at > w.at {
		w.at = at
		if durable.Refused(w.file.Name()) == nil {
			_, _ = w.file.WriteAt(storedir.WatermarkText(at), 0)
		}
	}
}

// get returns the highest offset, including those set by earlier processes.
func (w *watermark) get() events.Offset {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *watermark) close() error { return w.file.Close() }

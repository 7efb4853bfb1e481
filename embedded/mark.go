package embedded

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
)

const (
	markFile      = "mark"
	watermarkFile = "watermark"
	markVersion   = 1
)

// mark is what the owner wrote down about the store, beside the server's files.
type mark struct {
	Version int           `json:"version"`
	Streams []string      `json:"streams"` // which the store has
	Boot    string        `json:"boot"`    // of the machine, by which the owner ran; "": not known
	Clean   bool          `json:"clean"`   // it stopped by itself
	Durable events.Offset `json:"durable"` // the last offset then
	Servers []string      `json:"servers"` // versions of the servers that wrote to the store, each once
}

// bootID names the time for which the machine has been running. Where the system does not
// say it, every start counts as one after a power cut.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// readMark gives the mark. One that cannot be read says nothing, and is said.
func (s *Server) readMark() (mark, error) {
	m, err := loadMark(s.dir)
	if isDamagedFile(err) {
		s.logger.Warn("the store's mark is made anew", "dir", s.dir, "error", err)
		return mark{}, nil
	}
	return m, err
}

// writeMark writes down which streams there are, and that this process is at work or
// done.
func (s *Server) writeMark(clean bool) error {
	names, err := streamFolders(s.dir)
	if err != nil {
		return err
	}
	return replaceMark(s.dir, mark{Version: markVersion, Streams: names, Boot: bootID(), Clean: clean, Durable: s.durable.get(), Servers: s.servers})
}

func replaceMark(dir string, m mark) error {
	return statefile.Write(filepath.Join(dir, markFile), m, durable.WithSync)
}

// expectedStreams lists the streams that a directory says it has: by its mark, and by
// the server's own folders.
func expectedStreams(dir string, m mark) ([]string, error) {
	folders, err := streamFolders(dir)
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

func watermarkText(at events.Offset) []byte {
	number := fmt.Appendf(nil, "%016x", uint64(at))
	return fmt.Appendf(number, " %08x\n", crc32.ChecksumIEEE(number))
}

// openWatermark reads what was written last; nothing, or something damaged, is 0.
func openWatermark(dir string) (*watermark, error) {
	f, err := os.OpenFile(filepath.Join(dir, watermarkFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &watermark{file: f, at: loadWatermark(dir)}, nil
}

func loadWatermark(dir string) (at events.Offset) {
	text, _ := os.ReadFile(filepath.Join(dir, watermarkFile))
	_, _ = fmt.Sscanf(string(text), "%016x", &at)
	if !bytes.HasPrefix(text, watermarkText(at)) {
		return 0
	}
	return at
}

// set moves the watermark on. An error is no reason to stop: the mark is a second
// look at the log, which is safe without.
func (w *watermark) set(at events.Offset) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at > w.at {
		w.at = at
		_, _ = w.file.WriteAt(watermarkText(at), 0)
	}
}

// get gives the highest offset that was set, also before.
func (w *watermark) get() events.Offset {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *watermark) close() error { return w.file.Close() }

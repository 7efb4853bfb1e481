//go:build linux

package cmd_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// Acknowledged events survive a power cut. The store is on an ext4 image with delayed writeback. The process is killed,
// and the next process gets only the contents of the image at that moment.
func TestPowerCut(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	needImages(t)
	cuts, segmented := 1, 1 // how many cuts there are, and how many segments they must meet at least
	if testkit.Full() {
		cuts, segmented = 3, 2
	}
	if testkit.Soak() {
		cuts = 300
	}
	play := func(t *testing.T, subject func(round, i int) string) {
		d, acked, segments := newDisk(t), 0, 0
		for i := 0; i < cuts || (segments < segmented || acked == 0) && i < cuts+20; i++ { // the machine decides how many segments there are
			// Some runs are the first moments of a new store, others are longer, over several block files and
			// segments. In every second run, a process sends again the events of a killed one: acknowledged duplicates
			// are as durable as new events.
			most := []time.Duration{300, 1500, 3000}[i%3] * time.Millisecond
			runs := []time.Duration{50*time.Millisecond + time.Duration(testkit.Random(t).Int64N(int64(most)))}
			if i%2 == 1 {
				runs = append(runs, 50*time.Millisecond+time.Duration(testkit.Random(t).Int64N(int64(most))))
			}
			had := len(d.acked)
			d.cut(t, subject, runs...)
			if len(d.lost) > 0 {
				t.Fatalf("cut %d: %d of %d acknowledged events are lost, the first is %s", i, len(d.lost), len(d.acked), d.lost[0])
			}
			segments = max(segments, d.segments)
			acked += len(d.acked) - had
			if i%5 == 4 {
				d = newDisk(t)
			}
			if i%50 == 49 {
				t.Logf("%d cuts, %d events acknowledged, up to %d segments", i+1, acked, segments)
			}
		}
		if acked == 0 || segments < segmented {
			t.Errorf("got %d acknowledged events in %d segments: the test showed nothing", acked, segments)
		}
		t.Logf("%d cuts, %d events acknowledged, up to %d segments", cuts, acked, segments)
	}
	t.Run("product", func(t *testing.T) {
		play(t, func(_, i int) string { return fmt.Sprintf("session/s%d", i%20) })
	})
	t.Run("new sessions", func(t *testing.T) { // every second event begins one
		testkit.OnlyFull(t, "the same with 20 sessions")
		play(t, func(round, i int) string { return fmt.Sprintf("session/r%d-%d", round, i/2) })
	})
}

// needImages skips a test that cannot mount images here, and holds writeback back.
func needImages(t *testing.T) {
	t.Helper()
	testkit.Needs(t, os.Getuid() == 0, "root, to mount an image")
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		_, err := exec.LookPath(tool)
		testkit.Needs(t, err == nil, tool)
	}
	holdWriteback(t)
}

// holders counts the tests that need writeback held back.
var holders struct {
	mu     sync.Mutex
	n      int
	before writeback // the settings before the first of them
}

// holdWriteback stops the kernel from writing back pages that no process syncs, until all tests of this process that
// asked for it have ended. This affects the whole machine: the settings are first saved in a file, and if this process
// is killed, the next one restores them.
func holdWriteback(t *testing.T) {
	t.Helper()
	holders.mu.Lock()
	defer holders.mu.Unlock()
	note := filepath.Join(os.TempDir(), "tally-test-writeback.json")
	if holders.n == 0 {
		if err := restoreWriteback(vmDir, note); err != nil {
			t.Fatal(err)
		}
		holders.before = noteWriteback(t, note)
	}
	holders.n++
	t.Cleanup(func() {
		holders.mu.Lock()
		defer holders.mu.Unlock()
		if holders.n--; holders.n > 0 {
			return
		}
		if err := holders.before.restore(vmDir); err != nil {
			t.Error(err)
			return // the saved file stays for the next process
		}
		os.Remove(note)
	})
	for name, value := range heldBack {
		err := os.WriteFile(filepath.Join(vmDir, name), []byte(value), 0)
		testkit.Needs(t, err == nil, "writeback that can be held back")
	}
}

// heldBack are settings with which the kernel writes nothing back for an hour.
var heldBack = map[string]string{"dirty_writeback_centisecs": "0", "dirty_expire_centisecs": "360000"}

// noteWriteback saves the settings.
func noteWriteback(t *testing.T, note string) writeback {
	t.Helper()
	before := writeback{PID: os.Getpid(), Settings: make(map[string]string)}
	for name := range heldBack {
		value, err := os.ReadFile(filepath.Join(vmDir, name))
		testkit.Needs(t, err == nil, "writeback that can be held back")
		before.Settings[name] = strings.TrimSpace(string(value))
	}
	text, err := json.Marshal(before)
	if err == nil {
		err = os.WriteFile(note, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return before
}

const vmDir = "/proc/sys/vm"

// writeback is the kernel's settings before a process changed them.
type writeback struct {
	PID      int
	Settings map[string]string
}

func (w writeback) restore(dir string) error {
	var errs []error
	for name, value := range w.Settings {
		errs = append(errs, os.WriteFile(filepath.Join(dir, filepath.Base(name)), []byte(value), 0o644))
	}
	return errors.Join(errs...)
}

// restoreWriteback restores the settings that a killed process saved.
func restoreWriteback(dir, note string) error {
	text, err := os.ReadFile(note)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var w writeback
	if err == nil {
		err = json.Unmarshal(text, &w)
	}
	if err != nil {
		return fmt.Errorf("writeback was held back, and the settings before that are unknown: %w", err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", w.PID)); err == nil && w.PID != os.Getpid() {
		return fmt.Errorf("process %d holds writeback back: %s", w.PID, note)
	}
	if err := w.restore(dir); err != nil {
		return err
	}
	return os.Remove(note)
}

// If a test was killed, the next process restores the machine's settings. It does not if that test still runs.
func TestWritebackIsRestored(t *testing.T) {
	dir := t.TempDir()
	note, setting := filepath.Join(dir, "note"), filepath.Join(dir, "dirty_expire_centisecs")
	look := func(want string, noted bool) {
		t.Helper()
		have, err := os.ReadFile(setting)
		_, noteErr := os.Stat(note)
		if err != nil || string(have) != want || (noteErr == nil) != noted {
			t.Errorf("got settings %q, want %q; %v, %v", have, want, err, noteErr)
		}
	}
	leave := func(pid int) {
		t.Helper()
		text, err := json.Marshal(writeback{pid, map[string]string{"dirty_expire_centisecs": "3000"}})
		if err = errors.Join(err, os.WriteFile(setting, []byte("360000"), 0o600), os.WriteFile(note, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	leave(dead.Process.Pid)
	if err := restoreWriteback(dir, note); err != nil {
		t.Error(err)
	}
	look("3000", false)
	if err := restoreWriteback(dir, note); err != nil {
		t.Errorf("without saved settings: %v", err)
	}
	leave(os.Getppid()) // the process lives, so its settings stay
	if err := restoreWriteback(dir, note); err == nil {
		t.Error("the settings of a living process were restored")
	}
	look("360000", true)
	if err := os.WriteFile(note, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := restoreWriteback(dir, note); err == nil {
		t.Error("an unreadable file of settings: got no error")
	}
}

// cutDisk is an image with a file system, and the acknowledged events of its store.
type cutDisk struct {
	image    string
	round    int
	acked    map[string]uint64
	lost     []string // the events that the last cut lost
	segments int      // the number of the log's segments now
}

func newDisk(t *testing.T) *cutDisk {
	t.Helper()
	d := &cutDisk{image: filepath.Join(t.TempDir(), "disk"), acked: make(map[string]uint64)}
	mustRun(t, "truncate", "-s", "512M", d.image)
	mustRun(t, "mkfs.ext4", "-q", "-F", d.image)
	return d
}

func mustRun(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// mount mounts an image until the test ends at the latest. The journal commits only at a sync.
func mount(t *testing.T, image string) (dir string, unmount func()) {
	t.Helper()
	dir = t.TempDir()
	mustRun(t, "mount", "-o", "loop,commit=3000", image, dir)
	unmount = sync.OnceFunc(func() { mustRun(t, "umount", dir) })
	t.Cleanup(unmount)
	return dir, unmount
}

// cut appends for a while, once or several times the same events, kills the process each time, continues with the
// image's content at that moment, and searches for the acknowledged events.
func (d *cutDisk) cut(t *testing.T, subject func(round, i int) string, runs ...time.Duration) {
	t.Helper()
	d.round++
	d.power(t, func(store string) {
		for _, after := range runs {
			d.run(t, store, subject, after)
		}
	})
	d.verify(t)
	d.look(t)
}

// power calls use, which starts and kills processes, and continues with the image's content at that moment.
func (d *cutDisk) power(t *testing.T, use func(store string)) {
	t.Helper()
	dir, unmount := mount(t, d.image)
	use(filepath.Join(dir, "store"))
	survived := d.image + ".cut"
	mustRun(t, "cp", "--sparse=always", d.image, survived)
	unmount()
	if err := os.Rename(survived, d.image); err != nil { // the state after the cut
		t.Fatal(err)
	}
}

// run appends until the process is killed.
func (d *cutDisk) run(t *testing.T, store string, subject func(round, i int) string, after time.Duration) {
	t.Helper()
	c := command(t.Context(), store, "tally", "append", "-o", "jsonl", "--log-level", "error")
	c.Env = append(c.Env, "TALLY_SEGMENT=2MiB")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go d.produce(in, subject)
	killed := time.AfterFunc(after, func() { c.Process.Kill() })
	defer killed.Stop()
	for _, ack := range jsonLines[ackLine](t, out) {
		if ack.Durability == "durable" {
			d.acked[ack.ID] = ack.Offset
		}
	}
	c.Wait()
}

// verify checks that the views after the cut show no record that the log lost. Snapshots may be torn: they are not
// synced, and a reader detects it.
func (d *cutDisk) verify(t *testing.T) {
	t.Helper()
	dir, unmount := mount(t, d.image)
	defer unmount()
	var v struct {
		Findings []struct{ Subject, What string }
	}
	c := command(t.Context(), filepath.Join(dir, "store"), "tally", "verify", "-o", "json", "--log-level", "error")
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	if jerr := json.Unmarshal(out, &v); jerr != nil {
		t.Errorf("verify: %v, %v\n%s", err, jerr, said.String()) // the acknowledged events are checked nevertheless
	}
	for _, f := range v.Findings {
		if f.Subject == "catalog" || f.Subject == "search" || f.Subject == "work" {
			t.Errorf("after the cut, %s: %s", f.Subject, f.What)
		}
	}
}

// produce writes events until the reader is gone. Each has a kilobyte, so that a run fills several block files.
func (d *cutDisk) produce(in io.WriteCloser, subject func(round, i int) string) {
	defer in.Close()
	w := bufio.NewWriter(in)
	for i := 0; ; i++ {
		_, err := fmt.Fprintf(w, `{"specversion":"1.0","id":"r%d-%d","source":"urn:test:cut","type":"tally.turn.appended.v1","subject":"%s","data":{"entries":[{"thread":"main","turn":"%01000d"}]}}`+"\n", d.round, i, subject(d.round, i), i)
		if err != nil {
			return
		}
	}
}

// look reads the log after the cut.
func (d *cutDisk) look(t *testing.T) {
	t.Helper()
	dir, unmount := mount(t, d.image)
	defer unmount()
	c := command(t.Context(), filepath.Join(dir, "store"), "tally", "log", "--all-sessions", "-o", "jsonl", "--log-level", "error")
	var out, errw bytes.Buffer
	c.Stdout, c.Stderr = &out, &errw
	err := c.Run()
	if _, exit := errors.AsType[*exec.ExitError](err); err != nil && !exit {
		t.Fatal(err)
	}
	found := make(map[string]uint64)
	for line := range strings.Lines(out.String()) {
		var rec logLine
		if json.Unmarshal([]byte(line), &rec) == nil {
			if at, twice := found[rec.Event.ID]; twice {
				t.Fatalf("%s: got offsets %d and %d", rec.Event.ID, at, rec.Offset)
			}
			found[rec.Event.ID] = rec.Offset
		}
	}
	streams, err := filepath.Glob(filepath.Join(dir, "store", "jetstream", "*", "streams", "TALLY_*"))
	if err != nil {
		t.Fatal(err)
	}
	d.segments = len(streams)
	d.lost = nil
	for id, at := range d.acked {
		if found[id] != at {
			d.lost = append(d.lost, id)
		}
	}
}

package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/tree/keeper"
)

// TestTreeFigures measures how fast files follow the log, and the log follows files, beside other ways to do the same.
// Each part compares within its own run, and can be run by itself:
//
//	TALLY_SOAK=1 go test -v -run TestTreeFigures/latency ./cmd
//
// TALLY_FIGURES multiplies the counts of all parts; the default is 1. A smaller value only shows whether a part runs.
func TestTreeFigures(t *testing.T) {
	testkit.OnlySoak(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"latency", figureLatency},
		{"mirror", figureMirror},
		{"steps", figureSteps},
		{"busy", figureBusy},
		{"peers", figurePeers},
		{"rsync", figureRsync},
	} {
		t.Run(part.name, func(t *testing.T) {
			onDisk(t)
			part.run(t)
		})
	}
}

// figureLatency measures the time from an acknowledgement to the file, from a save to its revision, and of an append
// in mode sync; and beside it an append and a durable file written one after the other.
func figureLatency(t *testing.T) {
	n := figureCount(t, 400)
	k := newKept(t)
	k.says("mode = \"async\"\nbulk = \"never\"\n")
	st := k.keeps()
	var shown times
	for i := range n {
		k.save(st, "a.txt", text4K(i))
		acked := time.Now()
		k.waits(10*time.Second, 100*time.Microsecond, "the file shows it", func() bool { return fileIs(k.file("a.txt"), text4K(i)) })
		shown.add(time.Since(acked))
		time.Sleep(5 * time.Millisecond)
	}
	shown.log(t, "async: from the ack to the file, 4 KiB")
	var taken times
	seen := k.follow(st)
	for i := range n {
		k.write(fmt.Sprintf("s%d.txt", i), text4K(i))
		saved := time.Now()
		k.waits(10*time.Second, 100*time.Microsecond, "it is taken in", func() bool { return !seen.at(text4K(i)).IsZero() })
		taken.add(seen.at(text4K(i)).Sub(saved))
	}
	taken.log(t, "from a saved file to its revision, 4 KiB")
	st.Close()

	synced, plain := newKept(t), newKept(t)
	synced.says("mode = \"sync\"\n")
	plain.config("namespace = \"project\"\n")
	with, without := synced.keeps(), plain.keeps()
	var inSync, durable, both times
	for i := range n {
		inSync.add(took(func() { synced.save(with, "a.txt", text4K(i)) }))
		store := took(func() { plain.save(without, "a.txt", text4K(i)) })
		durable.add(store)
		both.add(store + took(func() { plain.writeDurably("x.txt", text4K(i)) }))
	}
	inSync.log(t, "append of a document in mode sync")
	durable.log(t, "append without a tree")
	both.log(t, "the same, then write, fsync, fsync of the folder")
	t.Logf("%-60s %.2f (target 3)", "ratio of p99", ratio(inSync.part(0.99), both.part(0.99)))
}

// figureMirror measures a folder of 100,000 files: creating it, and starting with it.
func figureMirror(t *testing.T) {
	many := figureCount(t, 100_000)
	k := newKept(t)
	k.config("namespace = \"project\"\n")
	k.fill(k.keeps(), many, func(n int) (id, text string) { return fmt.Sprintf("n%06d.txt", n), text4K(n)[4000:] })
	k.says("mode = \"async\"\nbulk = \"never\"\n")
	files := many
	start := func(what string) {
		began := time.Now()
		k.serve()
		up := time.Since(began)
		k.shows(time.Hour) // a million takes ten minutes and more
		all := time.Since(began)
		s := k.state()
		peak := k.memory("VmHWM")
		if s.Files != files {
			t.Errorf("%s: got %d files, want %d", what, s.Files, files)
		}
		// When the first save is imported, the start is complete.
		files++
		id := fmt.Sprintf("after%d.txt", files)
		k.write(id, id)
		k.waits(10*time.Minute, 10*time.Millisecond, "a save is taken in", func() bool { _, is := k.text(id); return is })
		saved := time.Since(began)
		t.Logf("%-60s up after %v, %d files after %v (%.0f/s), a save is taken in after %v; peak %d MB, then %d MB", what, up.Round(time.Millisecond), s.Files,
			all.Round(time.Millisecond), float64(s.Files)/all.Seconds(), saved.Round(time.Millisecond), peak>>20, k.memory("VmHWM")>>20)
	}
	start("first mirror (target 3000/s, below 200 MB)")
	k.stop(syscall.SIGTERM)
	start("clean start (target 2 s)")
	k.stop(syscall.SIGKILL)
	start("start after a kill")
	k.stop(syscall.SIGTERM)
}

// figureSteps measures steps of one conversation, one after the other, with and without a tree in alternating rounds.
func figureSteps(t *testing.T) {
	const rounds = 10
	n := figureCount(t, 500)
	with, without := newKept(t), newKept(t)
	with.config("namespace = \"project\"\n\n[[tree]]\nlayout = \"tallydir\"\ndir = \"talk\"\nmode = \"async\"\nbulk = \"never\"\n")
	without.config("namespace = \"project\"\n")
	shown, plain := with.keeps(), without.keeps()
	var appended, inFiles, alone, share, shareInFiles rates
	for round := range rounds {
		steps := func(st *tally.Store) time.Duration {
			return took(func() {
				for i := range n {
					if _, err := st.Session("long").AppendTurns(t.Context(), "main", step(round*n+i)); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
		one := steps(plain)
		began := time.Now()
		two := steps(shown)
		with.waitsFor(shown, "tallydir")
		all := time.Since(began)
		alone.add(n, one)
		appended.add(n, two)
		inFiles.add(n, all)
		share = append(share, ratio(one, two))
		shareInFiles = append(shareInFiles, ratio(one, all))
	}
	alone.log(t, "steps without a tree")
	appended.log(t, "steps appended to one conversation of a tree")
	inFiles.log(t, "the same until the file has the last one")
	t.Logf("%-60s %.2f (target 0.5), until the file has them %.2f; medians of %d rounds", "ratio of rates", share.median(), shareInFiles.median(), rounds)
}

// figureBusy measures appends of 16 producers beside a tree that shows them all and whose files are saved all the
// time, and the same appends and saves without a tree.
func figureBusy(t *testing.T) {
	const rounds, producers, edits = 7, 16, 100
	length := time.Duration(figureCount(t, 5000)) * time.Millisecond
	with, without := newKept(t), newKept(t)
	with.says("mode = \"async\"\nbulk = \"never\"\n")
	without.config("namespace = \"project\"\n")
	shown, plain := with.keeps(), without.keeps()
	for _, k := range []*kept{with, without} {
		k.write0("begun.txt")
	}
	var made atomic.Int64
	round := func(k *kept, st *tally.Store) (appended int64) {
		ctx, stop := context.WithTimeout(t.Context(), length)
		defer stop()
		var all sync.WaitGroup
		all.Go(func() {
			tick := time.NewTicker(time.Second / edits)
			defer tick.Stop()
			for i := 0; ctx.Err() == nil; i++ {
				<-tick.C
				if err := os.WriteFile(k.file(fmt.Sprintf("edited%02d.txt", i%edits)), []byte(text4K(int(made.Add(1)))), 0o644); err != nil {
					t.Error(err)
				}
			}
		})
		var n atomic.Int64
		for range producers {
			all.Go(func() {
				for ctx.Err() == nil {
					i := int(made.Add(1))
					if _, err := st.Documents().Save(t.Context(), "doc", fmt.Sprintf("d%03d/n%07d.txt", i/1000, i), tally.Write{Data: []byte(text4K(i))}); err != nil {
						t.Error(err)
						return
					}
					n.Add(1)
				}
			})
		}
		all.Wait()
		return n.Load()
	}
	for k, st := range map[*kept]*tally.Store{with: shown, without: plain} { // files and folders exist, caches are warm
		round(k, st)
		k.rests(st)
	}
	var beside, alone, share rates
	var behind times
	for i := range rounds {
		measure := func(k *kept, st *tally.Store, to *rates) {
			to.add(int(round(k, st)), length)
			if k == with {
				behind.add(took(func() { k.waitsFor(st, "tavern") }))
			}
			k.rests(st)
		}
		if i%2 == 0 {
			measure(with, shown, &beside)
			measure(without, plain, &alone)
		} else {
			measure(without, plain, &alone)
			measure(with, shown, &beside)
		}
		share = append(share, beside[i]/alone[i])
	}
	alone.log(t, fmt.Sprintf("appends of %d producers without a tree", producers))
	beside.log(t, fmt.Sprintf("beside a tree, %d saves a second", edits))
	t.Logf("%-60s %.2f (target 0.9), median of %d rounds: %.2f; files show all after %v", "ratio of rates", share.median(), rounds, share,
		behind.part(0.5).Round(time.Millisecond))
}

// figureCount returns how often a part repeats its work.
func figureCount(t *testing.T, n int) int {
	t.Helper()
	factor := 1.0
	if text := os.Getenv("TALLY_FIGURES"); text != "" {
		var err error
		if factor, err = strconv.ParseFloat(text, 64); err != nil || factor <= 0 {
			t.Fatalf("TALLY_FIGURES: got %q, want a number above 0", text)
		}
	}
	return max(int(float64(n)*factor), min(n, 3))
}

// figureTime returns the running time of a test from an environment variable.
func figureTime(t *testing.T, variable string, otherwise time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("%s: got %q, want a time such as 1h", variable, text)
	}
	return d
}

// figureNumber returns the value of a variable, at least 1.
func figureNumber(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s: got %q, want a number from 1 on", variable, text)
	}
	return n
}

// onDisk fails a test whose files are in memory, because its figures would mean nothing.
func onDisk(t *testing.T) {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
		t.Fatal("temporary files are in memory here: name a folder on a disk by TMPDIR")
	}
}

// config writes the project's file with some trees.
func (k *kept) config(text string) {
	k.t.Helper()
	err := os.MkdirAll(k.project, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(k.project, "tally.toml"), []byte(text), 0o644)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// keeps opens the store in this process, which keeps its trees until the store is closed.
func (k *kept) keeps() *tally.Store {
	k.t.Helper()
	for _, e := range k.env {
		if name, value, _ := strings.Cut(e, "="); name == "XDG_STATE_HOME" || name == "XDG_CONFIG_HOME" || name == "HOME" {
			k.t.Setenv(name, value)
		}
	}
	st, err := embedded.Open(k.t.Context(), embedded.Options{ConfigDir: k.project, Store: k.store, Trees: cmdutil.LiveLayout})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { st.Close() })
	return st
}

func (k *kept) save(st *tally.Store, id, text string) {
	k.t.Helper()
	if _, err := st.Documents().Save(k.t.Context(), "doc", id, tally.Write{Data: []byte(text)}); err != nil {
		k.t.Fatal(err)
	}
}

// fill appends documents, 1 to n, and closes the store.
func (k *kept) fill(st *tally.Store, n int, document func(n int) (id, text string)) {
	k.t.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 256 {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				id, text := document(i)
				if _, err := st.Documents().Save(k.t.Context(), "doc", id, tally.Write{Data: []byte(text)}); err != nil {
					k.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := st.Close(); err != nil {
		k.t.Fatal(err)
	}
}

// waitsFor waits until a tree of this process shows all durable records.
func (k *kept) waitsFor(st *tally.Store, tree string) {
	k.t.Helper()
	at, err := st.Log.Durable(k.t.Context())
	if err == nil {
		err = st.Wait(k.t.Context(), "tree:"+tree, at)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// rests waits until each view of the store is up to date and the work for the last saves is done, so that they do not
// disturb the next measurement.
func (k *kept) rests(st *tally.Store) {
	k.t.Helper()
	at, err := st.Log.Durable(k.t.Context())
	for _, r := range st.Runners() {
		if err == nil {
			err = r.Wait(k.t.Context(), at)
		}
	}
	if err != nil {
		k.t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
}

// waits polls until so returns true.
func (k *kept) waits(most, every time.Duration, what string, so func() bool) {
	k.t.Helper()
	for deadline := time.Now().Add(most); !so(); time.Sleep(every) {
		if time.Now().After(deadline) {
			k.t.Fatalf("timeout after %v: wait until %s", most, what)
		}
	}
}

// state returns the status of the tree without starting a program, which would cost more than the measured work.
func (k *kept) state() keeper.Status {
	k.t.Helper()
	said, err := keeper.Ask(k.t.Context(), config.Config{Backend: config.Local, Store: k.store}, config.Tree{Name: "tavern", Target: config.TreeDir, Dir: k.folder}, keeper.VerbState, keeper.Question{})
	if err != nil {
		k.t.Fatal(err)
	}
	return said.Status
}

// shows waits until the files show all records that are durable now.
func (k *kept) shows(most time.Duration) {
	k.t.Helper()
	head := k.head()
	k.waits(most, 10*time.Millisecond, "all is shown", func() bool { s := k.state(); return s.Watching != "" && s.Shown >= head })
}

// memory returns a value of the serving process's memory, in bytes: VmRSS now, VmHWM at its peak.
func (k *kept) memory(which string) (bytes int64) {
	k.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.serving.Process.Pid))
	if err != nil {
		k.t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), which+":")
	if _, err := fmt.Sscanf(line, "%d kB", &bytes); err != nil {
		k.t.Fatal(err)
	}
	return bytes << 10
}

// handles returns how many files the serving process has open, and how many folders it watches.
func (k *kept) handles() (open, watched int) {
	k.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fdinfo", k.serving.Process.Pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, e := range list {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // the file was closed meanwhile
		}
		open++
		watched += bytes.Count(text, []byte("inotify wd:"))
	}
	return open, watched
}

// writeDurably writes a file that survives a power cut.
func (k *kept) writeDurably(name, text string) {
	k.t.Helper()
	path := filepath.Join(k.project, name)
	f, err := os.Create(path + "~")
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Sync()
	}
	f.Close()
	if err == nil {
		err = os.Rename(path+"~", path)
	}
	d, derr := os.Open(k.project)
	if err == nil && derr == nil {
		err = d.Sync()
		d.Close()
	}
	if err != nil || derr != nil {
		k.t.Fatal(err, derr)
	}
}

// arrivals are the times at which a reader saw contents of documents in the log.
type arrivals struct {
	mu   sync.Mutex
	when map[string]time.Time
}

func (a *arrivals) at(text string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.when[text]
}

// follow starts a reader of the log that keeps the arrival times from now on.
func (k *kept) follow(st *tally.Store) *arrivals {
	k.t.Helper()
	after, err := st.Log.Durable(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	a := &arrivals{when: make(map[string]time.Time)}
	ctx, stop := context.WithCancel(k.t.Context())
	var reader sync.WaitGroup
	reader.Go(func() {
		for rec, err := range st.Log.Follow(ctx, events.Range{After: after}) {
			if err != nil {
				return // the store is closed
			}
			a.mu.Lock()
			if _, is := a.when[string(rec.Data)]; !is {
				a.when[string(rec.Data)] = time.Now()
			}
			a.mu.Unlock()
		}
	})
	k.t.Cleanup(func() { stop(); reader.Wait() })
	return a
}

// text4K is a text of 4 KiB.
func text4K(n int) string { return fmt.Sprintf("%4096d", n) }

// step is a line of a conversation.
func step(n int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"role":"assistant","n":%d,"content":"%400d"}`, n, n))
}

func fileIs(name, want string) bool {
	have, err := os.ReadFile(name)
	return err == nil && string(have) == want
}

func took(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// times are durations of a repeated action.
type times []time.Duration

func (l *times) add(d time.Duration) { *l = append(*l, d) }

// part returns the duration that a share of them did not exceed.
func (l times) part(share float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	return sorted[max(int(math.Ceil(share*float64(len(l))))-1, 0)]
}

func (l times) log(t *testing.T, what string) {
	t.Helper()
	t.Logf("%-60s p50 %v p99 %v at most %v (%d)", what, l.part(0.5).Round(10*time.Microsecond), l.part(0.99).Round(10*time.Microsecond),
		l.part(1).Round(10*time.Microsecond), len(l))
}

// rates are repetitions per second, by round.
type rates []float64

func (l *rates) add(n int, in time.Duration) { *l = append(*l, float64(n)/in.Seconds()) }

func (l rates) median() float64 {
	sorted := slices.Sorted(slices.Values(l))
	return sorted[len(sorted)/2]
}

func (l rates) log(t *testing.T, what string) {
	t.Helper()
	t.Logf("%-60s %.0f/s, median of %d rounds: %.0f", what, l.median(), len(l), []float64(l))
}

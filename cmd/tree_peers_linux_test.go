package cmd_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// figurePeers measures saves that become revisions, beside the same saves with a loop that commits each change that
// inotifywait reports.
func figurePeers(t *testing.T) {
	n := figureCount(t, 400)
	saves := func(k *kept) (at []time.Time) {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := range n {
			<-tick.C
			k.write(peerFile(i), peerText(i))
			at = append(at, time.Now())
		}
		return at
	}
	report := func(what string, latency times, used time.Duration) {
		if len(latency) < n {
			t.Logf("%s: %d of %d saves were overtaken by the next one of the same file", what, n-len(latency), n)
		}
		latency.log(t, what)
		t.Logf("%-60s %v of the processor, %v a save", "", used.Round(10*time.Millisecond), (used / time.Duration(n)).Round(10*time.Microsecond))
	}

	k := keepTree(t, "mode = \"async\"\nbulk = \"never\"\n")
	for i := range 100 {
		k.write0(peerFile(i))
	}
	k.settled()
	seen := k.follow(k.open())
	before, _ := k.cost()
	saved := saves(k)
	k.waits(30*time.Second, 10*time.Millisecond, "the last save is taken in", func() bool { return !seen.at(peerText(n - 1)).IsZero() })
	k.settled()
	after, _ := k.cost()
	var latency times
	for i, at := range saved {
		if when := seen.at(peerText(i)); !when.IsZero() {
			latency.add(when.Sub(at))
		}
	}
	report("a save to its revision", latency, after-before)
	tree := latency
	k.stop(os.Interrupt)

	for _, tool := range []string{"inotifywait", "git"} {
		if _, err := exec.LookPath(tool); err != nil {
			mustRun(t, "apt-get", "install", "-y", "-qq", map[string]string{"inotifywait": "inotify-tools", "git": "git"}[tool])
		}
	}
	p := newKept(t)
	if err := os.MkdirAll(p.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		p.write0(peerFile(i))
	}
	p.run("git", "init", "-q")
	p.run("git", "add", ".")
	p.run("git", "commit", "-qm", "first")
	c := p.commits()
	saved = saves(p)
	p.waits(60*time.Second, 50*time.Millisecond, "the last save is committed", func() bool {
		return strings.Contains(p.run("git", "show", "HEAD:docs/"+peerFile(n-1)), peerText(n - 1)[:20])
	})
	used, when := c.end()
	report("a save to its commit, inotifywait and git", p.latencies(saved, when), used)
	t.Logf("%-60s %.2f (p99 of the tree %v, target 400 ms)", "ratio of p50, tree to commits", ratio(tree.part(0.5), p.latencies(saved, when).part(0.5)),
		tree.part(0.99).Round(time.Millisecond))
}

func peerFile(n int) string { return fmt.Sprintf("f%02d.txt", n%100) }

// peerText has its number in a line of its own, so that git shows it.
func peerText(n int) string { return fmt.Sprintf("%-20d\n%s\n", n, strings.Repeat("x", 4096)) }

// commitLoop commits each change of a folder as soon as inotifywait reports it.
type commitLoop struct {
	t           *testing.T
	watch, loop *exec.Cmd
	mu          sync.Mutex
	when        []time.Time // time of each commit
	reads       sync.WaitGroup
}

func (k *kept) commits() *commitLoop {
	k.t.Helper()
	c := &commitLoop{t: k.t}
	c.watch = k.program("inotifywait", "-m", "-r", "-e", "close_write,moved_to,delete", "--exclude", `/\.git/`, k.folder)
	// Changes that arrived during a commit are part of it, so their lines are read at once.
	c.loop = k.program("bash", "-c", `while read -r line; do
		while read -r -t 0.001 line; do :; done
		git add -A && git commit -q -m save && echo committed
	done`)
	c.loop.Dir = k.folder
	said, err := c.watch.StderrPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if c.loop.Stdin, err = c.watch.StdoutPipe(); err != nil {
		k.t.Fatal(err)
	}
	out, err := c.loop.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	for _, p := range []*exec.Cmd{c.watch, c.loop} {
		if err := p.Start(); err != nil {
			k.t.Fatal(err)
		}
		k.t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	}
	for lines := bufio.NewScanner(said); lines.Scan() && !strings.Contains(lines.Text(), "Watches established"); {
	}
	c.reads.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == "committed" {
				c.mu.Lock()
				c.when = append(c.when, time.Now())
				c.mu.Unlock()
			}
		}
	})
	return c
}

// end stops the loop after the last commit. It returns the processor time of the loop and its programs, and the times
// of the commits.
func (c *commitLoop) end() (used time.Duration, when []time.Time) {
	c.t.Helper()
	if err := c.watch.Process.Signal(os.Interrupt); err != nil {
		c.t.Fatal(err)
	}
	c.watch.Wait()
	c.reads.Wait()
	c.loop.Wait()
	for _, p := range []*exec.Cmd{c.watch, c.loop} {
		used += p.ProcessState.UserTime() + p.ProcessState.SystemTime()
	}
	return used, c.when
}

// latencies returns the times from a save to the first commit with it.
func (k *kept) latencies(saved, committed []time.Time) (list times) {
	k.t.Helper()
	ids := strings.Fields(k.run("git", "log", "--reverse", "--format=%H"))[1:]
	if len(ids) != len(committed) {
		k.t.Fatalf("got %d commits, want %d", len(ids), len(committed))
	}
	for i, id := range ids {
		for line := range strings.Lines(k.run("git", "show", "--format=", "-U0", id)) {
			var n int
			if _, err := fmt.Sscanf(line, "+%d ", &n); err == nil && n < len(saved) {
				list.add(committed[i].Sub(saved[n]))
			}
		}
	}
	return list
}

// figureRsync measures the time until a changed document reaches another folder, by a tree, and by an export and
// rsync.
func figureRsync(t *testing.T) {
	for _, size := range []int{100, 10_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			n := figureCount(t, map[int]int{100: 50, 10_000: 5}[size])
			document := func(i int) (id, text string) { return fmt.Sprintf("n%05d.txt", i%size), text4K(i) }
			tree, plain := newKept(t), newKept(t)
			tree.config("namespace = \"project\"\n")
			plain.config("namespace = \"project\"\n")
			for _, k := range []*kept{tree, plain} {
				k.fill(k.keeps(), size, document)
			}
			tree.says("mode = \"async\"\nbulk = \"never\"\n")
			tree.serve()
			tree.shows(2 * time.Minute)
			st := tree.open()
			before, _ := tree.cost()
			var shown times
			for i := range n {
				id, text := document(size + i)
				tree.save(st, id, text)
				acked := time.Now()
				tree.waits(30*time.Second, 100*time.Microsecond, "the file shows it", func() bool { return fileIs(tree.file(id), text) })
				shown.add(time.Since(acked))
			}
			after, _ := tree.cost()
			shown.log(t, fmt.Sprintf("%d documents: tree", size))
			t.Logf("%-60s %v of the processor a change", "", ((after - before) / time.Duration(n)).Round(time.Millisecond))
			tree.stop(os.Interrupt)

			plain.servePlain()
			st = plain.open()
			out, to := filepath.Join(plain.project, "out"), filepath.Join(plain.project, "to")
			if err := os.MkdirAll(to, 0o755); err != nil {
				t.Fatal(err)
			}
			export := func() (used time.Duration) {
				for _, c := range []*exec.Cmd{
					plain.program(filepath.Join(plain.bin, "tally"), "export", "--all", "--format", "tavern", "-C", out, "--store", plain.store),
					plain.program("rsync", "-a", "--modify-window=-1", out+"/", to), // otherwise files of the same second and size count as equal
				} {
					if said, err := c.CombinedOutput(); err != nil {
						t.Fatalf("%v: %v\n%s", c.Args, err, said)
					}
					used += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
				}
				return used
			}
			export() // the first export writes all files
			before, _ = plain.cost()
			var exported times
			var used time.Duration
			for i := range n {
				id, text := document(size + i)
				plain.save(st, id, text)
				acked := time.Now()
				used += export()
				exported.add(time.Since(acked))
				if !fileIs(filepath.Join(to, "docs", id), text) {
					t.Fatalf("%s: missing after an export and rsync", id)
				}
			}
			after, _ = plain.cost()
			exported.log(t, fmt.Sprintf("%d documents: tally export and rsync", size))
			t.Logf("%-60s %v of the processor a change, %v of it of the server", "", ((after - before + used) / time.Duration(n)).Round(time.Millisecond),
				((after - before) / time.Duration(n)).Round(time.Millisecond))
			t.Logf("%-60s %.1f", "ratio of p50, export to tree", ratio(exported.part(0.5), shown.part(0.5)))
			plain.stop(os.Interrupt)
		})
	}
}

// servePlain starts a process that serves a store without a tree.
func (k *kept) servePlain() {
	k.t.Helper()
	c := k.program(filepath.Join(k.bin, "tally"), "serve", "--store", k.store, "-o", "jsonl", "--log-level", "error")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	k.serving = c
	k.t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	if !bufio.NewScanner(out).Scan() {
		k.t.Fatal("the server did not start in time")
	}
}

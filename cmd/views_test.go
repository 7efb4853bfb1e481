package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// tale returns CloudEvents of several sessions: turns, costs, runs, forks, and documents. Another name yields other
// events.
func tale(name string, sessions, each int) string {
	var b strings.Builder
	event := func(id, typ, subject, data string) {
		fmt.Fprintf(&b, `{"specversion":"1.0","id":"%s","source":"urn:test:views","type":"tally.%s.v1","subject":"%s","datacontenttype":"application/json","data":%s}`+"\n", id, typ, subject, data)
	}
	for i := range each {
		for s := range sessions {
			id, sub := fmt.Sprintf("%s-%d-%d", name, s, i), fmt.Sprintf("session/%s%d", name, s)
			switch {
			case i == 0 && s%3 == 2:
				event(id, "session.created", sub, fmt.Sprintf(`{"kind":"conversation","createdAt":"2026-01-01T00:00:00Z","fork":{"session":"%s%d","offset":1}}`, name, s-1))
			case i%10 == 7:
				event(id, "cost.accrued", sub, `{"model":"m","usd":"0.0001","purpose":"run","source":"reported","run":{"kind":"panel","id":"r"}}`)
			case i%10 == 8:
				event(id, "run.finished", sub, fmt.Sprintf(`{"run":{"kind":"panel","id":"r%d"},"outcome":"completed","result":{},"finishedAt":"2026-01-01T00:00:00Z"}`, i/50))
			case i%10 == 9:
				event(id, "document.written", fmt.Sprintf("document/doc/d%d", s), `{"n":1}`)
			default:
				event(id, "turn.appended", sub, fmt.Sprintf(`{"entries":[{"thread":"main","turn":{"role":"user","content":"number %d of %d"}}]}`, i, s))
			}
		}
	}
	return b.String()
}

// mustVerify compares every view with a fold of the log from zero.
func mustVerify(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("verify: %v\n%s", err, out)
	}
}

// kill kills a command at a random moment, and reports whether the command was still running.
func kill(t *testing.T, c *exec.Cmd, most time.Duration) bool {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var struck atomic.Bool
	timer := time.AfterFunc(time.Duration(testkit.Random(t).Int64N(int64(most))), func() { struck.Store(true); c.Process.Signal(os.Kill) })
	defer timer.Stop()
	err := c.Wait()
	if err != nil && !struck.Load() {
		t.Fatalf("%v: %v", c.Args, err)
	}
	return err != nil
}

// killAll kills a number of running commands at random moments, and calls check after each kill. A command that ended
// before its kill does not count, and the next kill comes earlier.
func killAll(t *testing.T, kills int, begin func(round int) *exec.Cmd, check func()) {
	t.Helper()
	most, killed, round := 500*time.Millisecond, 0, 0
	for ; killed < kills; round++ {
		if round > 10*(kills+5) {
			t.Fatalf("%d commands: got %d killed before their end, want %d", round, killed, kills)
		}
		if kill(t, begin(round), most) {
			killed, most = killed+1, most+most/20
		} else {
			most -= most / 5
		}
		check()
	}
	t.Logf("%d of %d were killed before their end, the last within %v", killed, round, most.Round(time.Millisecond))
}

// If the process that keeps the views is killed at any moment, the views that it leaves, and those that the next
// process makes of them, equal a fold of the log.
func TestKillProjector(t *testing.T) {
	testkit.OnlyFull(t, "TestKillAppend kills a process")
	t.Parallel()
	kills := 5
	if testkit.Soak() {
		kills = 100
	}
	store, text := filepath.Join(t.TempDir(), "store"), ""
	killAll(t, kills, func(round int) *exec.Cmd {
		text = tale(fmt.Sprintf("r%d-", round), 9, 150)
		c := command(t.Context(), store, "tally", "append", "-o", "jsonl")
		c.Stdin = strings.NewReader(text)
		return c
	}, func() { mustVerify(t, command(t.Context(), store, "tally", "verify")) })
	output(t, strings.NewReader(text), store, "tally", "append", "-o", "jsonl")
	output(t, nil, store, "tally", "daemon", "views", "--once")
	mustVerify(t, command(t.Context(), store, "tally", "verify"))
	mustBeCaughtUp(t, output(t, nil, store, "tally", "status", "-o", "json"))
}

// mustBeCaughtUp expects every view at the end of the log.
func mustBeCaughtUp(t *testing.T, status string) {
	t.Helper()
	var s struct {
		Durable uint64
		Views   []struct {
			View   string
			Offset uint64
		}
	}
	if err := json.Unmarshal([]byte(status), &s); err != nil {
		t.Fatal(err)
	}
	for _, v := range s.Views {
		if v.Offset != s.Durable {
			t.Errorf("view %s: got offset %d, want %d", v.View, v.Offset, s.Durable)
		}
	}
}

// A killed rebuild continues where it was, and readers use the old view until the rebuild is complete.
func TestKillRebuild(t *testing.T) {
	testkit.OnlyFull(t, "TestKillAppend kills a process")
	t.Parallel()
	kills := 5
	if testkit.Soak() {
		kills = 100
	}
	store := filepath.Join(t.TempDir(), "store")
	output(t, strings.NewReader(tale("s", 9, 300)), store, "tally", "append", "-o", "jsonl")
	output(t, nil, store, "tally", "daemon", "views", "--once")
	want := output(t, nil, store, "tally", "ls", "-o", "jsonl")
	killAll(t, kills, func(int) *exec.Cmd { return command(t.Context(), store, "tally", "rebuild") }, func() {
		if got := output(t, nil, store, "tally", "ls", "-o", "jsonl"); got != want {
			t.Fatalf("after a killed rebuild: got\n%s\nwant\n%s", got, want)
		}
	})
	output(t, nil, store, "tally", "rebuild")
	mustVerify(t, command(t.Context(), store, "tally", "verify"))
}

// Two processes keep the views beside one server: one works, the other waits. If the working process is killed, again
// and again, the other takes over within seconds.
func TestTwoProjectors(t *testing.T) {
	kills := testkit.Times(3)
	if testkit.Soak() {
		kills = 20
	}
	url := serveNATS(t)
	home := t.TempDir()
	run := func(name string, args ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), filepath.Join(bin, name), args...)
		c.Env = append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME="+filepath.Join(home, "cache"), "XDG_CONFIG_HOME="+home, "TALLY_BACKEND=nats", "TALLY_SERVER="+url)
		return c
	}
	project := func() *exec.Cmd {
		c := run("tally", "daemon", "views")
		c.Stderr = &bytes.Buffer{}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		return c
	}
	append1 := func(text string) {
		c := run("tally", "append", "-o", "jsonl")
		c.Stdin = strings.NewReader(text)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("append: %v\n%s", err, out)
		}
	}
	lines := strings.SplitAfter(tale("s", 3, 40*(kills+1)), "\n")
	part := len(lines) / (kills + 1)
	append1(strings.Join(lines[:part], ""))
	active := project()
	waitCaughtUp(t, run)
	var worst time.Duration
	for i := range kills {
		standby := project()
		began := time.Now()
		active.Process.Signal(os.Kill)
		active.Wait()
		append1(strings.Join(lines[(i+1)*part:min((i+2)*part, len(lines))], ""))
		waitCaughtUp(t, run)
		worst = max(worst, time.Since(began))
		mustVerify(t, run("tally", "verify"))
		active = standby
	}
	t.Logf("%d takeovers, the longest took %v including the appends meanwhile", kills, worst.Round(time.Millisecond))
	if worst > 5*time.Second {
		t.Errorf("a takeover took %v", worst)
	}
}

// waitCaughtUp waits until a projector has brought the views to the end of the log. It uses status, which changes
// nothing.
func waitCaughtUp(t *testing.T, run func(string, ...string) *exec.Cmd) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		out, err := run("tally", "status", "-o", "json").Output()
		if err != nil {
			t.Fatal(err)
		}
		var s struct {
			Durable uint64
			Views   []struct{ Offset uint64 }
		}
		if err := json.Unmarshal(out, &s); err != nil {
			t.Fatal(err)
		}
		behind := false
		for _, v := range s.Views {
			behind = behind || v.Offset < s.Durable
		}
		if !behind {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("timeout: the views are behind: %s", out)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// serveNATS runs a server as another operator would.
func serveNATS(t *testing.T) (url string) {
	t.Helper()
	s, err := startNATS(t.TempDir(), natsPayload)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopNATS(s) })
	return s.ClientURL()
}

// serve answers Prometheus with figures about its log and its views.
func TestServeMetrics(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	c := command(t.Context(), store, "tally", "serve", "--metrics", ":0", "-o", "json")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { c.Process.Kill(); c.Wait() }()
	var serving struct{ Metrics string }
	if err := json.NewDecoder(out).Decode(&serving); err != nil {
		t.Fatal(err)
	}
	output(t, strings.NewReader(tale("s", 3, 20)), store, "tally", "append", "-o", "jsonl")
	output(t, nil, store, "tally", "ls") // waits until the catalog shows them
	answer, err := http.Get(serving.Metrics)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"tally_append_events_total 60\n", `tally_view_lag_events{view="catalog"} 0`, `tally_view_quarantined_subjects{view="search"} 0`,
		"tally_log_durable_offset 60\n", "tally_sync_duration_seconds_count", "tally_store_free_bytes"} {
		if !strings.Contains(string(body), want) {
			t.Errorf("want %q in\n%s", want, body)
		}
	}
}

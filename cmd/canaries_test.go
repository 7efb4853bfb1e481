package cmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// hideout is a store with the secrets of a setting, and the output of commands about it.
type hideout struct {
	t          *testing.T
	dir, store string
	keys       string // the key file that commands use; empty: no key file
}

// run runs a command at the highest verbosity and returns its whole output.
func (h *hideout) run(code int, args ...string) string {
	h.t.Helper()
	c := withKeys(command(h.t.Context(), h.store, "tally", append(args, "--log-level", "debug")...), h.keys)
	c.Dir = h.dir
	out, err := c.CombinedOutput()
	if c.ProcessState == nil || c.ProcessState.ExitCode() != code {
		h.t.Errorf("tally %v: got %v, want code %d", args, err, code) // without the output
	}
	return string(out)
}

// hides fails if the output of a command has a secret.
func (h *hideout) hides(code int, args ...string) {
	h.t.Helper()
	if out := h.run(code, args...); testkit.HasCanary([]byte(out)) {
		h.t.Errorf("tally %v: got a secret:\n%s", args, out)
	}
}

func (h *hideout) path(name string) string { return filepath.Join(h.dir, name) }

func (h *hideout) write(name, text string) string {
	h.t.Helper()
	path := h.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return path
}

// empty fails if a file below a folder has a secret.
func (h *hideout) empty(name string) {
	h.t.Helper()
	if found, read := testkit.CanaryFiles(h.t, h.path(name)); len(found) > 0 || read == 0 {
		h.t.Errorf("%s, %d bytes: got a secret in %v", name, read, found)
	}
}

// has fails unless some file below a folder has a secret.
func (h *hideout) has(name, part string) {
	h.t.Helper()
	found, _ := testkit.CanaryFiles(h.t, h.path(name))
	if !strings.Contains(strings.Join(found, "\n"), part) {
		h.t.Errorf("%s: got no secret, want the clear one: %v", name, found)
	}
}

// setting returns a setting with a canary at every kind of place, and their number.
func (h *hideout) setting() (string, int) {
	h.t.Helper()
	text, err := os.ReadFile("testdata/canaries/run-setting.json")
	if err != nil {
		h.t.Fatal(err)
	}
	n, s := 0, strings.TrimSpace(string(text))
	for strings.Contains(s, "¤") {
		n++
		s = strings.Replace(s, "¤", testkit.Canary(fmt.Sprint("n", n)), 1)
	}
	return s, n
}

// job writes the folder of a job with a message.
func (h *hideout) job(root, id, text string) {
	h.t.Helper()
	usage := `{"inputTokens":1,"outputTokens":1,"reasoningTokens":0,"totalTokens":2,"cachedInputTokens":0}`
	message := fmt.Sprintf(`{"type":"userMessage","id":"m","contents":[{"type":"textPart","id":"p","text":%q}]}`, text)
	h.write(root+"/perstack/jobs/"+id+"/checkpoints/c1.json", fmt.Sprintf(`{"id":"c1","jobId":%q,"runId":"r","status":"completed","stepNumber":1,"messages":[%s],"expert":{"key":"e","name":"e","version":"1"},"usage":%s}`, id, message, usage))
	h.write(root+"/perstack/jobs/"+id+"/runs/r/event-1754000000001-1-startRun.json", fmt.Sprintf(`{"type":"startRun","id":"e1","expertKey":"e","timestamp":1754000000001,"jobId":%q,"runId":"r","stepNumber":1,"inputMessages":[%s]}`, id, message))
}

// settingPath is the path of job a's setting in its folder.
const settingPath = "perstack/jobs/a/runs/r/run-setting.json"

// P-35: of 40 secrets at every kind of place, no command prints one. No file of the store, of a backup or of an export
// without the key contains one, nor the log of a server, nor its metrics. The same search finds clear content in each
// of these places.
func TestCanaries(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t)
	t.Parallel()
	dir := t.TempDir()
	h := &hideout{t: t, dir: dir, store: filepath.Join(dir, "store")}
	setting, n := h.setting()
	if n < 40 {
		t.Fatalf("got %d secrets", n)
	}
	h.job("proj", "a", "hello there, this is what is said")
	h.write("proj/"+settingPath, setting)
	h.job("odd", "half", "hello")
	h.write("odd/perstack/jobs/half/runs/r/run-setting.json", strings.ReplaceAll(setting, `"jobId":"a"`, `"jobId":"half"`)[:len(setting)-9])
	h.write("odd/perstack/jobs/half/runs/r/run-setting.json~", setting)
	h.write("odd/perstack/jobs/half/runs/s/run-setting.json", strings.NewReplacer(`"jobId":"a","runId":"r"`, `"jobId":"half","runId":"s"`, `"text":"do it"`, `"text":"`+testkit.Canary("suspect")+`"`).Replace(setting))
	old := h.write("keys/old", "old:"+strings.Repeat("0123456789abcdef", 4)+"\n")
	both := h.write("keys/both", "old:"+strings.Repeat("0123456789abcdef", 4)+"\nnew:"+strings.Repeat("fedcba9876543210", 4)+"\n")
	wrong := h.write("keys/wrong", "old:"+strings.Repeat("00112233445566778899aabbccddeeff", 2)+"\nnew:"+strings.Repeat("ffeeddccbbaa99887766554433221100", 2)+"\n")
	lost := h.write("keys/lost", "third:"+strings.Repeat("89abcdef01234567", 4)+"\n")

	t.Run("P-35 neither a server's log at its highest verbosity nor its metrics have one", func(t *testing.T) {
		h.t = t
		stop := h.serve()
		h.hides(3, "import", h.path("proj")) // without a key
		h.keys = old
		h.hides(0, "import", h.path("proj"), "-o", "json")
		h.hides(3, "import", h.path("odd"))
		h.hides(0, "import", h.path("proj"))
		h.hides(3, "import", h.path("proj"), "--no-secrets", "--namespace", "without")
		h.keys = both
		h.hides(0, "secrets", "rotate", "-o", "json")
		h.hides(0, "ls", "-o", "json")
		if log, metrics := stop(); testkit.HasCanary([]byte(log)) || testkit.HasCanary([]byte(metrics)) || !strings.Contains(metrics, "tally_") || log == "" {
			t.Errorf("got a secret in the log of %d bytes or the metrics of %d", len(log), len(metrics))
		}
		h.empty("store") // as after a kill
	})
	t.Run("P-35 no command tells one, with the key or without", func(t *testing.T) {
		h.t = t
		h.tellNothing(old)
	})
	t.Run("P-35 no error tells one: of a wrong key, of one that is lost, of a file that has none, of what is refused", func(t *testing.T) {
		h.t = t
		for keys, code := range map[string]int{wrong: 5, lost: 3, "": 3} {
			h.keys = keys
			h.hides(code, "secrets", "check")
			h.hides(3, "export", "--all", "--format", "perstack", "-C", h.path("out"+filepath.Base(keys)), "-o", "json")
			h.empty("out" + filepath.Base(keys))
		}
		h.keys = h.path("proj/" + settingPath) // not a key file, but a file with the secrets
		for _, args := range [][]string{{"secrets", "check"}, {"secrets", "rotate"}, {"import", h.path("proj")}, {"doctor"}} {
			h.hides(2, args...)
		}
		h.keys = both
		h.hides(2, "doc", "put", "secret/x/y", h.path("proj/"+settingPath), "--create")
		h.keys = testkit.Canary("path")
		h.hidesBut(2, testkit.Canary("path"), "secrets", "check")
	})
	t.Run("P-35 no backup has one, nor what is restored of it", func(t *testing.T) {
		h.t, h.keys = t, both
		h.hides(0, "backup", h.path("backups"), "-o", "json")
		h.empty("backups")
		h.hides(0, "backup", "--verify", h.path("backups"))
		back := &hideout{t: t, dir: dir, store: h.path("restored"), keys: both}
		back.hides(0, "restore", h.path("backups"))
		back.hides(0, "secrets", "check")
		h.empty("restored")
	})
	t.Run("P-35 with the key an export is byte-identical", func(t *testing.T) {
		h.t, h.keys = t, both
		h.hides(0, "export", "job/a", "--format", "perstack", "-C", h.path("with"))
		if have, err := os.ReadFile(h.path("with/jobs/a/runs/r/run-setting.json")); err != nil || string(have) != setting {
			t.Errorf("got %.400s, %v", have, err)
		}
		h.has("with", "run-setting.json")
		h.keys = ""
		h.hides(3, "export", "job/a", "--format", "perstack", "-C", h.path("bare"))
		have, err := os.ReadFile(h.path("bare/jobs/a/runs/r/run-setting.json"))
		if err != nil || strings.Count(string(have), `"tally:secret:`) < 30 || !json.Valid(have) {
			t.Errorf("got %.400s, %v", have, err)
		}
		h.empty("bare")
		h.empty("store")
	})
	t.Run("P-35 what stands in clear is found in each place", func(t *testing.T) {
		exposed := &hideout{t: t, dir: dir, store: h.path("clear"), keys: old}
		exposed.job("loud", "a", "use "+testkit.Canary("said"))
		exposed.run(0, "import", h.path("loud"))
		exposed.run(0, "backup", h.path("loud-backups"))
		exposed.run(0, "export", "--all", "--format", "perstack", "-C", h.path("loud-out"))
		exposed.has("clear", ".blk")
		exposed.has("clear", "search.db")
		exposed.has("loud-backups", "objects/")
		exposed.has("loud-out", "c1.json")
		for _, args := range [][]string{{"show", "job/a", "--last", "5"}, {"show", "job/a", "-o", "json"}, {"show", "job/a", "--run", "r", "--step", "1"}, {"log", "job/a", "-o", "jsonl"}, {"log", "job/a", "--raw"},
			{"search", "canary"}, {"search", "canary", "-o", "json"}} {
			if out := exposed.run(0, args...); !testkit.HasCanary([]byte(out)) {
				t.Errorf("tally %v: want the canary in %.300s", args, out)
			}
		}
		stop := exposed.serve("--listen", testkit.Canary("address")) // the refused connection is logged, and sent to the client
		if said, _ := stop(); !testkit.HasCanary([]byte(said)) {
			t.Errorf("want the canary in the server's output: %s", said)
		}
	})
}

// hidesBut is like hides, except for one text.
func (h *hideout) hidesBut(code int, but string, args ...string) {
	h.t.Helper()
	if out := strings.ReplaceAll(h.run(code, args...), but, ""); testkit.HasCanary([]byte(out)) {
		h.t.Errorf("tally %v: got a secret:\n%s", args, out)
	}
}

// tellNothing runs all reading commands on a store, as text and as JSON, with keys and without.
func (h *hideout) tellNothing(keys string) {
	h.t.Helper()
	for n, c := range []struct {
		code int
		args string
	}{
		{0, "ls"}, {0, "jobs"}, {0, "show job/a"}, {0, "show job/a --all"}, {0, "show job/a --run r"}, {0, "show job/a --run r --step 1"}, {0, "runs job/a"}, {0, "runs job/a --tree"},
		{0, "log job/a"}, {0, "log --all-sessions"}, {0, "search hello"}, {4, "search canary"}, {4, "search Zq8fW3kLm1"}, {4, "search canary --all"}, {0, "cost"}, {0, "stats"}, {0, "status"},
		{0, "config"}, {0, "verify"}, {0, "quota"}, {0, "doc ls"}, {0, "doc log secret/a/r"}, {0, "doc links secret/a/r"}, {0, "doc cat secret/a/r"},
		{0, "doc cat secret/a/r#1"}, {0, "doc diff secret/a/r #1 head"}, {0, "doctor"},
	} {
		for i, form := range [][]string{nil, {"-o", "json"}} {
			if !testkit.Plays(n*2+i, 11) {
				continue
			}
			h.keys = ""
			if i == 0 {
				h.keys = keys
			}
			h.hides(c.code, append(strings.Fields(c.args), form...)...)
		}
	}
	h.hides(0, "log", "--all-sessions", "--raw")
	h.hides(0, "export", "job/a", "--format", "html")
	h.hides(0, "export", "job/a", "--format", "markdown")
	h.hides(0, "__complete", "doc", "cat", "secret/")
}

// serve runs a server. The returned stop reads its metrics, kills it, and returns its output and the metrics.
func (h *hideout) serve(args ...string) (stop func() (said, metrics string)) {
	h.t.Helper()
	c := withKeys(command(h.t.Context(), h.store, "tally", append([]string{"serve", "-o", "json", "--log-level", "debug", "--metrics", "127.0.0.1:0"}, args...)...), h.keys)
	var log bytes.Buffer
	c.Stderr = &log
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	var at struct{ Metrics string }
	ready := json.NewDecoder(out).Decode(&at)
	return func() (string, string) { return stopped(h.t, c, &log, at.Metrics, ready) }
}

func stopped(t *testing.T, c *exec.Cmd, log *bytes.Buffer, url string, ready error) (said, metrics string) {
	t.Helper()
	if ready == nil {
		answer, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		metrics = string(text)
		c.Process.Kill()
	}
	c.Wait() // killed, or ended already
	return log.String(), metrics
}

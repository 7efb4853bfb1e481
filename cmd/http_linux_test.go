package cmd_test

import (
	"bufio"
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
	"syscall"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// servingHTTP starts a server and returns its URL, and the header with the token of the store.
func servingHTTP(t *testing.T, ctx context.Context, store string, args ...string) (c *exec.Cmd, url, auth string) {
	t.Helper()
	c = command(ctx, store, "tally", append([]string{"serve", "--http", "127.0.0.1:0", "-o", "json"}, args...)...)
	var errw bytes.Buffer
	c.Stderr = &errw
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var said struct{ HTTP string }
	if err == nil {
		err = json.Unmarshal(line, &said)
	}
	token, err2 := os.ReadFile(filepath.Join(store, "http-token"))
	if err != nil || err2 != nil || said.HTTP == "" {
		t.Fatalf("%v, %v, %q, %s", err, err2, line, &errw)
	}
	return c, said.HTTP, "Authorization: Bearer " + strings.TrimSpace(string(token))
}

// Each line of docs/http.md works. A stop ends streams, and the exit code is 0.
func TestHTTP(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	_, err := exec.LookPath("curl")
	testkit.Needs(t, err == nil, "curl")
	ctx, cancel := context.WithTimeout(t.Context(), 2*within)
	defer cancel()
	store := filepath.Join(t.TempDir(), "store")
	server, url, auth := servingHTTP(t, ctx, store)
	t.Run("W-24 every line of docs/http.md", func(t *testing.T) {
		page, err := os.ReadFile("../docs/http.md")
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(page), "```sh\n")[1:]
		dir, lines := t.TempDir(), 0
		var script strings.Builder
		script.WriteString("set -e\n")
		for _, block := range blocks {
			block, _, _ = strings.Cut(block, "```")
			lines += strings.Count("\n"+block, "\ncurl ")
			script.WriteString(block)
		}
		sh := exec.CommandContext(ctx, "/bin/sh", "-x", "-c", script.String())
		sh.Dir = dir
		sh.Env = append(os.Environ(), "URL="+url)
		if err := os.WriteFile(filepath.Join(dir, "auth"), []byte(auth+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := sh.CombinedOutput()
		if err != nil || lines < 30 {
			t.Fatalf("%d lines, %v: %s", lines, err, out)
		}
		for _, want := range []string{`"written":true`, `"duplicate":false`, "event: record", "tally_http_requests_total", "# To do", `"asOf":`} {
			if !bytes.Contains(out, []byte(want)) {
				t.Errorf("the output lacks %s: %s", want, out)
			}
		}
	})
	t.Run("W-24 the command that serve prints", func(t *testing.T) {
		try := "sed 's/^/Authorization: Bearer /' " + filepath.Join(store, "http-token") + " | curl -sS -H @- " + url + "/v1"
		out, err := exec.CommandContext(ctx, "/bin/sh", "-c", try).Output()
		if err != nil || !bytes.Contains(out, []byte(`"durability":"durable"`)) {
			t.Errorf("got %s, %v", out, err)
		}
	})
	t.Run("W-31 a stop", func(t *testing.T) {
		r, err := http.NewRequestWithContext(ctx, "GET", url+"/v1/records", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		name, value, _ := strings.Cut(auth, ": ")
		r.Header.Set(name, value)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if err := server.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(answer.Body)
		if err != nil || !strings.Contains(string(rest), "event: end\ndata: {\"reason\":\"stopping\"}") {
			t.Errorf("the stream ends with %.200q, %v", rest[max(0, len(rest)-200):], err)
		}
		if err := server.Wait(); fmt.Sprint(err) != "<nil>" {
			t.Errorf("the server ends with %v", err)
		}
	})
}

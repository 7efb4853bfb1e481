package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// hostile is an id that would create files, end quotes and bring back an older command if a shell evaluated it. It has
// no control characters: those are escaped.
const hostile = "evil $(touch made-1) `touch made-2`;touch made-3 'q' \"z\" \\ ~ #x"

// completionStore is a store with sessions of difficult names, and a folder beside it.
func completionStore(t *testing.T) (home, store string) {
	t.Helper()
	home = t.TempDir()
	store = filepath.Join(home, "store")
	st, err := embedded.Open(t.Context(), embedded.Options{Store: store, Backend: "local", Source: "urn:test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"order-desk", "urn:a:b", "root/travel", "ctl\x1b[2J\nrm", hostile, "two words", "two worlds"} {
		sub := events.Session(st.Namespace(), id)
		created, err := events.New("urn:test", sub, &events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-02T03:04:05Z", Title: "$(touch made-4)\n\x1b[2J\x07`touch made-5` title"})
		if err != nil {
			t.Fatal(err)
		}
		turn, err := events.New("urn:test", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: "gpt 5", Turn: events.Raw(`{"role":"user","content":"$(touch made-6) hello\u001b[2J"}`)}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Append(t.Context(), sub, log.Any, created, turn); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(home, "work", "folder in work"), 0o700); err != nil {
		t.Fatal(err)
	}
	return home, store
}

// shell is a shell with only the completion of tally installed. Calls of tally are written to a file, except those of
// the completion.
type shell struct {
	*terminal
	called, work string
}

const spy = `#!/bin/sh
case $1 in
__*|completion) exec "$REAL" "$@" ;;
esac
printf '<%s>' "$@" >"$CALLED.part" && mv "$CALLED.part" "$CALLED"
`

func startShell(t *testing.T, home, store, name string, args ...string) *shell {
	t.Helper()
	path, err := exec.LookPath(name)
	testkit.Needs(t, err == nil, name)
	sh := &shell{newTerminal(t, 200, 40), filepath.Join(home, "called"), filepath.Join(home, "work")}
	program := filepath.Join(home, "bin", "tally")
	if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte(spy), 0o700); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), path, args...)
	c.Dir = sh.work
	c.Env = []string{"HOME=" + home, "PATH=" + filepath.Dir(program) + ":/usr/bin:/bin", "TERM=xterm", "LANG=C.UTF-8", "PS1=ready> ", "TALLY_STORE=" + store, "REAL=" + filepath.Join(bin, "tally"), "CALLED=" + sh.called}
	sh.run(c)
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended already
		_ = c.Wait()
	})
	sh.await("ready> ")
	return sh
}

// calls returns the calls of tally by a line on which keys were pressed. If a slow machine offered no candidate in
// time, the keys are pressed again.
func (sh *shell) calls(keys, want string) string {
	sh.t.Helper()
	got := ""
	for range 5 {
		_ = os.Remove(sh.called) // the file may not exist
		sh.press(keys + "\r")
		for giveUp := time.Now().Add(5 * time.Second); time.Now().Before(giveUp); time.Sleep(5 * time.Millisecond) {
			if data, err := os.ReadFile(sh.called); err == nil {
				got = strings.ReplaceAll(string(data), "/>", ">") // zsh removes the slash
				break
			}
		}
		if got == want {
			return got
		}
		sh.press("\x15") // clears the line
	}
	return got
}

// In a shell without other settings, Tab completes names from the store. No text in the store is run, leaves its word
// or moves the cursor.
func TestCompletionInShells(t *testing.T) {
	for _, c := range []struct {
		name, args string
		tab        string // keys that list the candidates
	}{
		{"bash", "--norc --noprofile", "\t\t"},
		{"zsh", "-f", "\t"},
		{"fish", "--no-config", "\t"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "bash" {
				testkit.OnlyFull(t, "bash completes the same names")
			}
			t.Parallel()
			home, store := completionStore(t)
			args := strings.Fields(c.args)
			install := "source <(tally completion " + c.name + ")"
			if c.name == "fish" {
				args = append(args, "-C", "function fish_prompt; echo -n 'ready> '; end; function fish_right_prompt; end")
				install = "tally completion fish | source"
			}
			sh := startShell(t, home, store, c.name, args...)
			sh.press(install + "\r")
			for i, line := range []struct{ keys, want string }{
				{"tally sho\tx", "<show><x>"},
				{"tally show ord\t", "<show><order-desk>"},
				{"tally show urn:\t", "<show><urn:a:b>"},
				{"tally show urn:a:\t--all", "<show><urn:a:b><--all>"},
				{"tally show trav\t", "<show><travel>"},
				{"tally show ctl\t", "<show><ctl=1B=5B2J=0Arm>"},
				{"tally show evi\t", "<show><" + hostile + ">"},
				{"tally show 'evi\t", "<show><" + hostile + ">"},
				{"tally show evi\t--tools bri\t", "<show><" + hostile + "><--tools><brief>"}, // Tab after the id
				{"tally show tw\td\t", "<show><two words>"},                                  // two ids
				{"tally show ord\t--tools=bri\t", "<show><order-desk><--tools=brief>"},
				{"tally queue a\tx", "<queue><add><x>"},
				{"tally ls --sort cr\t", "<ls><--sort><created>"},
				{"tally show fol\t", "<show><fol>"}, // a file is not a session
				{"tally import fol\t", "<import><folder in work>"},
				{"tally import x --store fol\t", "<import><x><--store><folder in work>"},
			} {
				if !testkit.Plays(i, 5) {
					continue
				}
				if got := sh.calls(line.keys, line.want); got != line.want {
					t.Errorf("%q: got a call with %s, want %s", line.keys, got, line.want)
				}
			}
			sh.press("tally show " + c.tab)
			sh.await("title")
			if screen := sh.text(); strings.Contains(screen, "\x1b[2J") || strings.Contains(screen, "made-4)\n") {
				t.Errorf("got an unescaped title on the screen:\n%q", screen)
			}
			if made, err := filepath.Glob(filepath.Join(sh.work, "made-*")); err != nil || len(made) > 0 {
				t.Errorf("got new files %s, %v", made, err)
			}
		})
	}
}

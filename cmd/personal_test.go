package cmd_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/stores/tavern"
)

// A11, D-66: 40 words are in personal settings, beside a project with every kind of data. No export of the project has
// one, no server's log at its highest verbosity, no metrics, no daemon and no command about the project. A store with
// personal data does not listen, and a listening store accepts no personal data. The same search finds the words in
// the user's own store, and in a backup of it, which is a full copy.
func TestPersonalCanaries(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t)
	t.Parallel()
	dir := t.TempDir()
	h := &hideout{t: t, dir: dir, store: filepath.Join(dir, "store")}
	personalProject(t, h.store)
	t.Run("D-66 neither a server's log nor its metrics", func(t *testing.T) {
		h.t = t
		stop := h.serve()
		h.tellProject()
		if said, metrics := stop(); testkit.HasCanary([]byte(said)) || testkit.HasCanary([]byte(metrics)) || said == "" || !strings.Contains(metrics, "tally_") {
			t.Errorf("got a word in the log of %d bytes or the metrics of %d:\n%s", len(said), len(metrics), said)
		}
	})
	t.Run("D-66 no command about the project, without a server", func(t *testing.T) {
		h.t = t
		if testkit.Soak() {
			h.tellProject()
		}
		for _, args := range []string{"status", "doc ls", "daemon run --once"} {
			h.hides(0, strings.Fields(args)...)
		}
	})
	t.Run("D-66 no export of the project", func(t *testing.T) {
		h.t = t
		for n, args := range [][]string{{"--format", "tavern"}, {"--format", "tavern", "--layer", "project"}, {"--format", "perstack"}} {
			out, code := fmt.Sprint("out", n), 0
			if slices.Contains(args, "perstack") {
				code = 3 // the project has no jobs, so nothing is written
			}
			h.run(code, append([]string{"export", "--all", "-C", h.path(out)}, args...)...)
			if found, _ := testkit.CanaryFiles(t, h.path(out)); len(found) > 0 {
				t.Errorf("%v: got %v", args, found)
			}
		}
		h.empty("out0")
	})
	t.Run("D-66 a store that has them does not listen", func(t *testing.T) {
		h.t = t
		h.hides(2, "serve", "--listen", "127.0.0.1:0")
	})
	t.Run("D-66 they are where they belong", func(t *testing.T) {
		h.t = t
		h.run(0, "backup", h.path("backups"))
		h.has("backups", "objects/")
		h.has("store", ".blk")
		st, err := embedded.Open(t.Context(), embedded.Options{Store: h.store, Backend: "local"})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		if id, err := tavern.PersonalOf(st).AgentSession(t.Context(), testkit.Canary("a3")); err != nil || id != testkit.Canary("s3") {
			t.Errorf("got %q, %v", id, err)
		}
	})
}

// personalProject makes a store with a project, and 40 words in personal settings.
func personalProject(t *testing.T, dir string) {
	t.Helper()
	st, err := embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local"})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	ctx, p := t.Context(), tavern.PersonalOf(st)
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range 10 {
		do(p.SetProjectSession(ctx, "/home/"+testkit.Canary(fmt.Sprint("p", n)), "s"))
		do(p.SetAgentSession(ctx, testkit.Canary(fmt.Sprint("a", n)), testkit.Canary(fmt.Sprint("s", n))))
		do(p.SetSetting(ctx, fmt.Sprint("k", n), events.Raw(`"`+testkit.Canary(fmt.Sprint("v", n))+`"`)))
	}
	a, err := tavern.NewAgent(ctx, st, tavern.NewAgentOptions{ID: "6f9619ff-8b86-d011-b42d-00c04fc964ff", Name: "Ann"})
	do(err)
	_, err = tavern.InboxOf(st, a.ID()).Send(ctx, tavern.Message{From: "user", Type: "note", Thread: "t", Body: []byte(`"hi"`)})
	do(err)
	_, err = tavern.QueueOf(st, "q").Enqueue(ctx, tavern.Item{ID: "i", Body: []byte("x")})
	do(err)
	_, err = st.Documents().Create(ctx, "doc", "plan", tally.Write{Data: []byte("bread"), Owner: a.ID()})
	do(err)
	_, err = st.Session("talk").AppendTurns(ctx, events.MainThread, []byte(`{"role":"user","content":"hello"}`))
	do(err)
}

// tellProject runs all reading commands on a project, as text and as JSON.
func (h *hideout) tellProject() {
	h.t.Helper()
	for i, args := range []string{"ls", "status", "config", "stats", "verify", "quota", "doctor", "doc ls", "agent ls", "flow ls", "queue ls", "queue ls q", "inbox ls 6f9619ff-8b86-d011-b42d-00c04fc964ff",
		"show talk", "log talk", "log --all-sessions", "search hello", "transcript ls", "doc cat doc/plan"} {
		if !testkit.Plays(i, 3) {
			continue
		}
		h.hides(0, strings.Fields(args)...)
		h.hides(0, append(strings.Fields(args), "-o", "json")...)
	}
	h.hides(4, "search", "canary")
}

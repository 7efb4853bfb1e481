package tavern_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/internal/daemon/runner"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
)

// memberPlay makes a copy of the test program a member of a team, until its input ends.
const memberPlay = "TALLY_TEST_MEMBER"

// member is a process that works on a store with others, with its instructions.
type member struct {
	Store  string
	Role   string // of memberRoles
	Name   string
	Seed   uint64
	Agents []int // that it plays
	Count  int   // of items or messages in total
}

// memberRoles are the functions that members run until they are done or killed.
var memberRoles = map[string]func(ctx context.Context, m member) error{
	"owner": ownTeam, "daemon": daemonTeam, "enqueuer": enqueueTeam, "worker": workTeam, "lister": listTeam, "watcher": watchTeam,
	"sender": sendTeam, "consumer": consumeTeam, "listener": listenTeam, "restarted": restartTeam,
}

// word is a message from a member to the parent.
type word struct {
	What  string
	ID    string
	Fence uint64
	N     int
	State map[string]string `json:",omitempty"`
}

var speaking sync.Mutex

// speak sends a message to the parent.
func speak(w word) {
	speaking.Lock()
	defer speaking.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(w) // a parent that is gone does not read
}

// playMember runs a member until its input ends.
func playMember(text string) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the parent is gone
	}()
	var m member
	err := json.Unmarshal([]byte(text), &m)
	if err == nil {
		err = memberRoles[m.Role](ctx, m)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, m.Role, m.Name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// isAway reports whether an error means that the server did not answer.
func isAway(err error) bool {
	return errors.Is(err, log.ErrUnavailable) || errors.Is(err, log.ErrUnknown)
}

// open attaches to the store of a team, or becomes its owner.
func (m member) open(ctx context.Context) (*tally.Store, error) {
	for {
		st, err := embedded.Open(ctx, embedded.Options{Store: m.Store, Backend: "local"})
		if err == nil || !isAway(err) {
			return st, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ride calls a function with a store until it succeeds, and again if the store's owner is gone.
func (m member) ride(ctx context.Context, do func(st *tally.Store) error) error {
	for {
		st, err := m.open(ctx)
		if err != nil {
			return err
		}
		err = do(st)
		_ = st.Close() // it may be lost
		if !isAway(err) {
			return err
		}
		if strings.Contains(err.Error(), "no answer") {
			speak(word{What: "silence", ID: m.Name + ": " + err.Error()})
		}
	}
}

// teamDaemons returns daemons that remove nothing.
func teamDaemons(st *tally.Store) ([]daemon.Daemon, error) {
	return tavern.Daemons(st, tavern.DaemonOptions{})
}

// ownTeam owns the store, and runs its daemons.
func ownTeam(ctx context.Context, m member) error {
	st, err := embedded.Open(ctx, embedded.Options{Store: m.Store, Backend: "local", Own: true, Wait: time.Hour, Daemons: teamDaemons})
	if err != nil {
		return err
	}
	speak(word{What: "owns"})
	<-ctx.Done()
	return st.Close()
}

// daemonTeam runs daemons beside the owner.
func daemonTeam(ctx context.Context, m member) error {
	return m.ride(ctx, func(st *tally.Store) error {
		list, err := teamDaemons(st)
		if err == nil {
			speak(word{What: "tends"})
			err = runner.Run(ctx, st, "", list, nil)
		}
		return err
	})
}

// troupe is members that are processes, some of which are killed.
type troupe struct {
	t     *testing.T
	store string
	on    func(w word) // receives their messages, one at a time
	said  chan struct{}

	hearing sync.Mutex
	mu      sync.Mutex // guards the fields below
	all     map[string]*exec.Cmd
	over    map[string]chan struct{}
	kills   map[string][]time.Time // times at which a member was killed, by its name
}

func newTroupe(t *testing.T, store string, on func(word)) *troupe {
	r := &troupe{t: t, store: store, on: on, said: make(chan struct{}, 1), all: make(map[string]*exec.Cmd), over: make(map[string]chan struct{}), kills: make(map[string][]time.Time)}
	t.Cleanup(r.end)
	return r
}

// start starts a member.
func (r *troupe) start(m member) {
	r.t.Helper()
	m.Store = r.store
	text, err := json.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env, c.Stderr = append(os.Environ(), memberPlay+"="+string(text)), os.Stderr
	_, err = c.StdinPipe() // it ends with this process, at the latest
	var out io.Reader
	if err == nil {
		out, err = c.StdoutPipe()
	}
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	over := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[m.Name], r.over[m.Name] = c, over
	go func() {
		defer close(over)
		r.hear(m.Name, out)
		if err := c.Wait(); err != nil && c.ProcessState.Exited() {
			r.t.Errorf("%s has ended: %v", m.Name, err)
		}
		r.wake()
	}()
}

func (r *troupe) hear(name string, out io.Reader) {
	for in := bufio.NewReader(out); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return // also in the middle of a message: it was killed
		}
		var w word
		if err := json.Unmarshal(line, &w); err != nil {
			r.t.Errorf("member %s printed %q", name, line)
			continue
		}
		r.hearing.Lock()
		r.on(w)
		r.hearing.Unlock()
		r.wake()
	}
}

func (r *troupe) wake() {
	select {
	case r.said <- struct{}{}:
	default: // it has a wake-up already
	}
}

// until waits until a condition holds. It fails if no member sends a message for minutes.
func (r *troupe) until(holds func() bool) {
	r.t.Helper()
	for {
		r.hearing.Lock()
		is := holds()
		r.hearing.Unlock()
		if is {
			return
		}
		if r.t.Failed() {
			r.t.FailNow()
		}
		select {
		case <-r.said:
		case <-time.After(3 * time.Minute):
			r.t.Fatal("no member sent a message")
		}
	}
}

// kill kills a member with SIGKILL. All messages that it sent have been received then.
func (r *troupe) kill(name string) {
	r.mu.Lock()
	c, over := r.all[name], r.over[name]
	delete(r.all, name)
	r.kills[name] = append(r.kills[name], time.Now())
	r.mu.Unlock()
	if c != nil {
		_ = c.Process.Kill()
		<-over
	}
}

// wait waits until a member has ended by itself.
func (r *troupe) wait(name string) {
	r.mu.Lock()
	over := r.over[name]
	r.mu.Unlock()
	<-over
}

// end kills all.
func (r *troupe) end() {
	r.mu.Lock()
	names := slices.Collect(maps.Keys(r.all))
	r.mu.Unlock()
	for _, name := range names {
		r.kill(name)
	}
}

// strike kills a random member, or once in oneIn times the store's present owner, and starts it again. It returns the
// member's role.
func (r *troupe) strike(random *rand.Rand, list []member, oneIn int) (what string) {
	m := list[random.IntN(len(list))]
	what = m.Role
	if random.IntN(oneIn) == 0 {
		owns := r.owner()
		if n := slices.IndexFunc(list, func(m member) bool { return m.Name == owns }); n >= 0 {
			m, what = list[n], "whoever owned the store"
		}
	}
	r.kill(m.Name)
	m.Seed = random.Uint64()
	r.start(m)
	return what
}

// owner returns the name of the member that owns the store.
func (r *troupe) owner() string {
	var file struct{ PID int }
	text, err := os.ReadFile(filepath.Join(r.store, "owner.json"))
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		return "" // the store has no owner at the moment
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, c := range r.all {
		if c.Process.Pid == file.PID {
			return name
		}
	}
	return ""
}

// besideOthers runs a test whose members mostly wait in parallel with others, except in a soak, which measures times.
func besideOthers(t *testing.T) {
	if !testkit.Soak() {
		t.Parallel()
	}
}

package errata_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/testkit"
)

// killedPlay is the environment variable with the program that a copy of this test plays until it is killed.
const killedPlay = "TALLY_TEST_PANEL_PLAY"

// script is a program, and its progress in the lives of its players so far. A player begins with the step after the
// one in which the last one died.
type script struct {
	Dir     string
	Program int
	Lives   [][laneCount]int // calls that were made, by lane
}

func (s script) steps() []panelOp { return seededProgram(s.Program, 30) }

// relive applies the lives so far to a machine's model. It returns the remaining steps and, for the last life, the
// lanes with a further call.
func (s script) relive(m *panelMachine) (rest []panelOp, stuck []int) {
	m.model = newErrataModel()
	rest = s.steps()
	for _, calls := range s.Lives {
		m.replay = &replay{left: calls}
		for len(rest) > 0 && len(m.replay.stuck) == 0 {
			m.step(rest[0])
			rest = rest[1:]
		}
		stuck = m.replay.stuck
	}
	m.replay = nil
	return rest, stuck
}

// The owner of the store is killed twice while it plays a program, and another one continues. The final session
// equals the model after the completed calls, and perhaps those in progress.
func TestPanelKilled(t *testing.T) {
	if text := os.Getenv(killedPlay); text != "" {
		playKilled(t, text)
		return
	}
	testkit.Long(t)
	testkit.NotUnderRace(t) // a killed process reports no race
	count := 6
	switch {
	case testkit.Soak():
		count = 1000
	case !testkit.Full():
		count = 2
	}
	for i := range count {
		t.Run(fmt.Sprint("program ", i), func(t *testing.T) {
			t.Parallel()
			s := script{Dir: filepath.Join(t.TempDir(), "store"), Program: i}
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range 2 {
				s.live(t, 1+random.IntN(25))
			}
			s.live(t, 1<<30)
		})
	}
}

// live lets a player continue the program, kills it after some calls, and determines which calls took effect. If two
// sets of calls have the same result, the first one will do, because the model's other state changes only together
// with the compared state.
func (s *script) live(t *testing.T, calls int) {
	t.Helper()
	made := s.kill(t, calls)
	before := s.Lives
	s.Lives = append(slices.Clip(before), made)
	_, stuck := s.relive(&panelMachine{t: t, test: t})
	var failures []string
	for _, more := range subsets(stuck) {
		life := made
		for _, lane := range more {
			life[lane]++
		}
		s.Lives = append(slices.Clip(before), life)
		failure := s.compare(t)
		if failure == "" {
			return
		}
		failures = append(failures, fmt.Sprintf("after %v calls: %s", life, failure))
	}
	t.Fatalf("killed after the lives %v and then %v acknowledged calls:\n%s", before, made, strings.Join(failures, "\n"))
}

// subsets returns all subsets, the empty one first.
func subsets(list []int) [][]int {
	all := [][]int{nil}
	for _, x := range list {
		for _, s := range all {
			all = append(all, append(slices.Clip(s), x))
		}
	}
	return all
}

// kill lets a copy of this test continue the program, kills it after some calls, and returns the calls that are known
// to have returned.
func (s *script) kill(t *testing.T, calls int) (made [laneCount]int) {
	t.Helper()
	text, err := json.Marshal(s)
	must(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestPanelKilled$")
	cmd.Env = append(os.Environ(), killedPlay+"="+string(text))
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	total := 0
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var lane int
		if n, _ := fmt.Sscanf(lines.Text(), "call %d", &lane); n == 0 {
			if strings.HasPrefix(lines.Text(), "    panel") { // a failure has its position
				t.Errorf("the player: %s", lines.Text())
			}
			continue
		}
		made[lane]++ // also lines that were in the pipe before the kill
		if total++; total == calls {
			must(t, cmd.Process.Kill())
		}
	}
	_ = cmd.Wait() // it was killed, or it ended
	return made
}

// playKilled continues a program and writes a line after each call that returned.
func playKilled(t *testing.T, text string) {
	var s script
	must(t, json.Unmarshal([]byte(text), &s))
	open := func() *tally.Store {
		st, err := embedded.Open(t.Context(), embedded.Options{Store: s.Dir, Backend: "local"})
		must(t, err)
		return st
	}
	m := &panelMachine{t: t, test: t}
	rest, _ := s.relive(m)
	m.st, m.tick = open(), func(lane int) { fmt.Printf("call %d\n", lane) }
	m.reopen = func(st *tally.Store) *tally.Store {
		must(t, st.Close())
		return open()
	}
	m.open()
	for _, op := range rest {
		m.step(op)
	}
	must(t, m.st.Close())
}

// compare returns the difference between the session and the model after the lives so far.
func (s *script) compare(t *testing.T) (difference string) {
	t.Helper()
	st, err := embedded.Open(t.Context(), embedded.Options{Store: s.Dir, Backend: "local"})
	must(t, err)
	defer st.Close()
	report := &reporter{}
	m := &panelMachine{t: report, test: t, st: st}
	s.relive(m)
	defer func() {
		if r := recover(); r != nil && r != any(report) {
			panic(r)
		}
		difference = report.text
	}()
	m.check()
	return ""
}

// reporter keeps the first failure and ends the check.
type reporter struct{ text string }

func (r *reporter) Helper() {}

func (r *reporter) Fatalf(format string, args ...any) {
	r.text = fmt.Sprintf(format, args...)
	panic(r)
}

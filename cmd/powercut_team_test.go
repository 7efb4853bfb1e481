//go:build linux

package cmd_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// A5: after a power cut while a team works, each added item, claim, finish, message and document is stored at the
// offset that its call returned. No item is finished twice. And the test can fail: calls that do not wait for the disk
// lose some.
func TestPowerCutOfTeams(t *testing.T) {
	testkit.OnlyFull(t, "TestPowerCut cuts the power")
	t.Parallel()
	needImages(t)
	cuts := 2
	if testkit.Soak() {
		cuts = 300
	}
	t.Run("product", func(t *testing.T) {
		d, returned := newTeamDisk(t), make(map[string]int)
		calls := []string{"Enqueue", "Next", "Finish", "Send", "Save"}
		all := func() bool {
			return !slices.ContainsFunc(calls, func(call string) bool { return returned[call] == 0 })
		}
		for i := 0; i < cuts || !all() && i < cuts+20; i++ { // the number of calls before the kill is random
			had := len(d.said)
			r, err := d.cut(t, teamScript{Round: i % 5, Workers: 1 + i%4})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.lost)+len(r.twice) > 0 {
				t.Fatalf("cut %d, of %d calls: got lost %v, finished twice %v", i, len(d.said), r.lost, r.twice)
			}
			for _, s := range d.said[had:] {
				returned[s.Call]++
			}
			if i%5 == 4 {
				d = newTeamDisk(t)
			}
			if i%20 == 19 {
				t.Logf("%d cuts, calls that returned: %v", i+1, returned)
			}
		}
		if !all() {
			t.Error("some call never returned: the test showed little")
		}
		t.Logf("%d cuts, calls that returned: %v", cuts, returned)
	})
	t.Run("buffered", func(t *testing.T) {
		testkit.OnlySoak(t)
		for range 5 {
			d := newTeamDisk(t)
			if _, err := d.cut(t, teamScript{Workers: 1}); err != nil { // creates the store
				t.Fatal(err)
			}
			r, err := d.cut(t, teamScript{Round: 1, Workers: 4, Buffered: true})
			if err != nil || len(r.lost) > 0 {
				t.Logf("caught: %d of %d calls that returned are lost, %v", len(r.lost), len(d.said), err)
				return
			}
		}
		t.Error("calls that do not wait for the disk lost nothing: this test cannot fail")
	})
}

// teamDisk is a disk with a store, and the calls that returned on it.
type teamDisk struct {
	*cutDisk
	said []teamSaid
}

func newTeamDisk(t *testing.T) *teamDisk {
	t.Helper()
	return &teamDisk{cutDisk: newDisk(t)}
}

// cut runs a team until the power cut, and then checks the store. It returns an error if the store cannot be read.
func (d *teamDisk) cut(t *testing.T, c teamScript) (teamReport, error) {
	t.Helper()
	d.power(t, func(store string) {
		c.Store = store
		d.work(t, c)
	})
	dir, unmount := mount(t, d.image)
	defer unmount()
	return lookAtTeam(t.Context(), filepath.Join(dir, "store"), d.said)
}

// work runs a team, and kills the process soon after some of its calls.
func (d *teamDisk) work(t *testing.T, c teamScript) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := exec.CommandContext(t.Context(), os.Args[0])
	p.Env, p.Stderr = append(os.Environ(), teamPlay+"="+string(text)), os.Stderr
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	calls, wait := 1+testkit.Random(t).IntN(2*mostCalls()), time.Duration(testkit.Random(t).Int64N(int64(4*time.Millisecond)))
	in, had := json.NewDecoder(out), len(d.said)
	for { // including the output before the kill
		var s teamSaid
		if err := in.Decode(&s); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
			break
		}
		if d.said = append(d.said, s); len(d.said) == had+calls {
			time.AfterFunc(wait, func() { _ = p.Process.Kill() })
		}
	}
	_ = p.Wait() // killed above
	if len(d.said) < had+calls {
		t.Fatalf("the process ended before the kill, after %d calls", len(d.said)-had)
	}
}

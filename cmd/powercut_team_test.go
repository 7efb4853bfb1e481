//go:build linux

package cmd_test

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// A5: the power goes while a team works. An item that was put in, a claim, a finish, a message
// and a document are there if the call returned, where it said; no item is finished twice. And
// the test would notice: calls that do not wait for the disk lose some.
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
		for i := 0; i < cuts || !all() && i < cuts+20; i++ { // after how few calls it is killed is up to chance
			had := len(d.said)
			r, err := d.cut(t, teamScript{Round: i % 5, Workers: 1 + i%4})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.lost)+len(r.twice) > 0 {
				t.Fatalf("cut %d, of %d calls these are lost: %v; finished twice are %v", i, len(d.said), r.lost, r.twice)
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
			t.Error("not each call returned: the test showed little")
		}
		t.Logf("%d cuts, calls that returned: %v", cuts, returned)
	})
	t.Run("buffered", func(t *testing.T) {
		testkit.OnlySoak(t)
		for range 5 {
			d := newTeamDisk(t)
			if _, err := d.cut(t, teamScript{Workers: 1}); err != nil { // there is a store
				t.Fatal(err)
			}
			r, err := d.cut(t, teamScript{Round: 1, Workers: 4, Buffered: true})
			if err != nil || len(r.lost) > 0 {
				t.Logf("caught: %d of %d calls that returned are gone, %v", len(r.lost), len(d.said), err)
				return
			}
		}
		t.Error("calls that do not wait for the disk lost nothing: this test cannot tell")
	})
}

// teamDisk is a disk with a store, and what returned on it.
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

// work has a team work, and kills the process soon after some of its calls.
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
	calls, wait := 1+rand.N(2*mostCalls()), rand.N(4*time.Millisecond)
	in, had := json.NewDecoder(out), len(d.said)
	for { // also the output from before the kill
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
	_ = p.Wait() // it was killed
	if len(d.said) < had+calls {
		t.Fatalf("the process ended by itself, after %d calls", len(d.said)-had)
	}
}

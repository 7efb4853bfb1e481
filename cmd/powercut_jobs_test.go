//go:build linux

package cmd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// After a power cut while up to four writers work on a job, the store has the effects of each call that had returned,
// byte for byte. No effect is stored in part, such as a checkpoint without its messages. Repeating the other calls
// adds nothing twice. And the test can fail: calls that do not wait for the disk lose some effects; a wrong order
// leaves checkpoints without messages, and usage without its step.
func TestPowerCutOfJobs(t *testing.T) {
	testkit.Long(t)
	testkit.OnlyFull(t, "TestPowerCut cuts the power; TestKilled of stores/perstack has the same promise")
	t.Parallel()
	needImages(t)
	t.Run("P-32 what a call did when it returned survives a power cut", func(t *testing.T) {
		cuts := 4 // one for each number of writers
		if testkit.Soak() {
			cuts = 300
		}
		j, returned, segments := newJobDisk(t), make(map[string]int), 0
		for i := range cuts {
			if r := j.cut(t, jobScript{Round: i % 5, Writers: 1 + i%4}); !r.isClean() {
				t.Fatalf("cut %d, after %d calls: got %+v", i, len(j.said), r)
			}
			segments = max(segments, j.segments)
			if i%5 == 4 || i == cuts-1 {
				for _, s := range j.said {
					returned[s.Call]++
				}
				t.Logf("%d cuts, calls that returned: %v, up to %d segments", i+1, returned, segments)
				j = newJobDisk(t)
			}
		}
		if returned["StoreCheckpoint"] == 0 {
			t.Errorf("got the calls %v: the test showed nothing", returned)
		}
	})
	t.Run("buffered", func(t *testing.T) {
		for range 5 {
			j := newJobDisk(t)
			j.cut(t, jobScript{Writers: 1}) // creates the store
			if r := j.cut(t, jobScript{Round: 1, Writers: 4, Buffered: true}); len(r.Lost) > 0 {
				t.Logf("caught: %d of %d calls that returned are lost", len(r.Lost), len(j.said))
				return
			}
		}
		t.Error("calls that do not wait for the disk lost nothing: this test cannot fail")
	})
	t.Run("early", func(t *testing.T) {
		half, wrong := 0, 0
		for range 40 { // the moment of the cut is random
			r := newJobDisk(t).cut(t, jobScript{Writers: 4, Early: true})
			if half, wrong = half+len(r.Half), wrong+len(r.Sum); half > 0 && wrong > 0 {
				t.Logf("caught: %d checkpoints without messages, %v", half, r.Sum)
				return
			}
		}
		t.Errorf("the wrong order: got %d checkpoints in part and %d wrong sums: this test cannot fail", half, wrong)
	})
}

// jobDisk is a disk with a store, and the calls that returned on it.
type jobDisk struct {
	*cutDisk
	key  string // path of the key file
	said []jobSaid
}

func newJobDisk(t *testing.T) *jobDisk {
	t.Helper()
	key := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(key, []byte("k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &jobDisk{cutDisk: newDisk(t), key: key}
}

// cut writes jobs until the power cut. Another process then checks the store.
func (j *jobDisk) cut(t *testing.T, c jobScript) (r jobReport) {
	t.Helper()
	j.power(t, func(store string) {
		c.Store = store
		j.write(t, c)
	})
	dir, unmount := mount(t, j.image)
	defer unmount()
	c.Store = filepath.Join(dir, "store")
	streams, err := filepath.Glob(filepath.Join(c.Store, "jetstream", "*", "streams", "TALLY_*"))
	if err != nil {
		t.Fatal(err)
	}
	j.segments = len(streams)
	told, err := json.Marshal(j.said)
	if err != nil {
		t.Fatal(err)
	}
	p := j.command(t, c)
	p.Stdin = bytes.NewReader(told)
	out, err := p.Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (j *jobDisk) command(t *testing.T, c jobScript) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := exec.CommandContext(t.Context(), os.Args[0])
	p.Env, p.Stderr = append(os.Environ(), jobPlay+"="+string(text), "TALLY_SECRET_KEY_FILE="+j.key), os.Stderr
	return p
}

// mostCalls bounds how many calls return before a cut.
func mostCalls() int {
	if testkit.Soak() {
		return 200
	}
	return 60
}

// write starts a process that writes jobs, and kills it soon after some of its calls.
func (j *jobDisk) write(t *testing.T, c jobScript) {
	t.Helper()
	p, calls, wait := j.command(t, c), 1+testkit.Random(t).IntN(mostCalls()), time.Duration(testkit.Random(t).Int64N(int64(4*time.Millisecond)))
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	in, had := json.NewDecoder(out), len(j.said)
	for { // including the output before the kill
		var s jobSaid
		if err := in.Decode(&s); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
			break
		}
		if j.said = append(j.said, s); len(j.said) == had+calls {
			time.AfterFunc(wait, func() { _ = p.Process.Kill() })
		}
	}
	_ = p.Wait() // killed above
	if len(j.said) < had+calls {
		t.Fatalf("the process ended before the kill, after %d calls", len(j.said)-had)
	}
}

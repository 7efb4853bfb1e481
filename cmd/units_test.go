package cmd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// unitPlay is the variable that makes a copy of these tests append to several subjects at once.
const unitPlay = "TALLY_TEST_UNITS"

// unitScript is the script of such a copy.
type unitScript struct {
	Store   string
	Round   string
	Moves   int // amounts to move between accounts, by each of Writers; 0: batches of three for ever
	Writers int
	Apart   bool // appends the parts of a batch one by one, which the log must not do
}

// playUnits plays a script, and prints each acknowledged batch.
func playUnits(text string) {
	var c unitScript
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		s := &shop{dir: c.Store}
		var all sync.WaitGroup
		for w := range c.Writers {
			all.Go(func() {
				if c.Moves > 0 {
					s.move(fmt.Sprintf("%s-%d", c.Round, w), c.Moves)
				} else {
					s.three(fmt.Sprintf("%s-%d", c.Round, w), c.Apart)
				}
			})
		}
		all.Wait()
		err = s.close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// shop is a store that is opened again after its owner has ended.
type shop struct {
	dir string
	mu  sync.Mutex
	st  *tally.Store
}

// store returns the store. It opens it again if it is still the failed one.
func (s *shop) store(failed *tally.Store) *tally.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st == failed {
		if s.st != nil {
			s.st.Close() // the owner has ended
		}
		var err error
		for s.st = nil; s.st == nil; {
			if s.st, err = embedded.Open(context.Background(), embedded.Options{Store: s.dir, Backend: "local"}); err != nil {
				fmt.Fprintln(os.Stderr, err)
				time.Sleep(50 * time.Millisecond)
			}
		}
	}
	return s.st
}

func (s *shop) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st.Close()
}

var saying sync.Mutex

// say prints a line for the parent.
func say(id string) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Printf("%q\n", id)
}

// three appends to three sessions for ever, in one batch or one after the other.
func (s *shop) three(writer string, apart bool) {
	st := s.store(nil)
	for i := 0; ; i++ {
		id := fmt.Sprintf("%s-%d", writer, i)
		var parts []log.Part
		for n := range 3 {
			e := events.Event{ID: id, Source: "urn:test:units", Type: events.TypeTurnAppended,
				Data: fmt.Appendf(nil, `{"entries":[{"thread":"main","turn":"%0500d"}]}`, i)}
			parts = append(parts, log.Part{Subject: events.Session("", fmt.Sprint("s", (i+n)%7)), Events: []events.Event{e}})
		}
		units := [][]log.Part{parts}
		if apart {
			units = slices.Collect(slices.Chunk(parts, 1))
		}
		for _, unit := range units {
			if _, err := st.AppendAll(context.Background(), unit...); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		say(id)
	}
}

const accounts = 10

func account(n int) events.Subject { return events.Document("", "account", strconv.Itoa(n)) }

// move moves amounts from one account to another. The store may fail at any time.
func (s *shop) move(writer string, moves int) {
	st := s.store(nil)
	for i := range moves {
		for n := 0; ; n++ {
			from, to := rand.IntN(accounts), rand.IntN(accounts-1)
			if to >= from {
				to++
			}
			parts, err := transfer(st, from, to, int64(rand.IntN(100)), fmt.Sprintf("%s-%d-%d", writer, i, n))
			for err == nil {
				_, err = st.AppendAll(context.Background(), parts...)
				if err == nil || !errors.Is(err, log.ErrUnavailable) && !errors.Is(err, log.ErrUnknown) {
					break
				}
				st, err = s.store(st), nil // repeats the same append
			}
			if err == nil {
				say(fmt.Sprintf("%s-%d-%d", writer, i, n))
				break
			}
			conflict, refused := errors.AsType[*log.ConflictError](err)
			switch {
			case refused && (conflict.Subject == account(from) || conflict.Subject == account(to)):
				say("conflict")
			case errors.Is(err, log.ErrUnavailable):
				st = s.store(st)
			default:
				fmt.Fprintln(os.Stderr, "a refusal that is no conflict:", err)
				os.Exit(1)
			}
		}
	}
}

// transfer reads two accounts, and returns the events to append.
func transfer(st *tally.Store, from, to int, amount int64, id string) ([]log.Part, error) {
	var parts []log.Part
	for n, change := range map[int]int64{from: -amount, to: amount} {
		rec, err := st.Log.Last(context.Background(), account(n))
		if err != nil {
			return nil, err
		}
		have, err := strconv.ParseInt(string(rec.Data), 10, 64)
		if err != nil {
			return nil, err
		}
		e := events.Event{ID: id, Source: "urn:test:units", Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: strconv.AppendInt(nil, have+change, 10)}
		parts = append(parts, log.Part{Subject: account(n), Expect: log.At(rec.Offset), Events: []events.Event{e}})
	}
	return parts, nil
}

// startUnits starts a process that plays a script.
func startUnits(t *testing.T, c unitScript) (*exec.Cmd, io.Reader) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := exec.CommandContext(t.Context(), os.Args[0])
	p.Env, p.Stderr = append(os.Environ(), unitPlay+"="+string(text)), os.Stderr
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, out
}

// halves reads the log, and counts the batches that are stored in part, and the acknowledged ones that are missing.
func halves(t *testing.T, dir, kind string, want int, acked map[string]bool) (half, lost int) {
	t.Helper()
	st, err := embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local"})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	found := make(map[string]int)
	for rec, err := range st.Log.Read(t.Context(), events.Range{Kind: kind}) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Source == "urn:test:units" {
			found[rec.ID]++
		}
	}
	for _, n := range found {
		if n != want {
			half++
		}
	}
	for id := range acked {
		if found[id] == 0 {
			lost++
		}
	}
	return half, lost
}

// While many writers in three processes move amounts between ten documents, the owner of the store is killed. The sum
// stays the same, and every refusal is a conflict that names one of the two documents.
func TestSumsStay(t *testing.T) {
	testkit.OnlyFull(t, "TestDeathDuringUnits of log kills between any two steps; TestKillAppend kills a process")
	testkit.Long(t)
	t.Parallel()
	moves, kills := 60, 2
	if testkit.Soak() {
		moves, kills = 1700, 12
	}
	dir := filepath.Join(t.TempDir(), "store")
	st, err := embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local"})
	for n := 0; err == nil && n < accounts; n++ {
		_, err = st.Append(t.Context(), account(n), log.At(0), events.Event{Source: "urn:test:start", Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: []byte("1000")})
	}
	if err == nil {
		err = st.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards acked and conflicts
	acked, conflicts := make(map[string]bool), 0
	var all sync.WaitGroup
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	play := func(round string, writers, moves int) *exec.Cmd {
		p, out := startUnits(t, unitScript{Store: dir, Round: round, Moves: moves, Writers: writers})
		all.Go(func() {
			defer begin() // also if the process ends without output
			in := json.NewDecoder(out)
			for id := ""; in.Decode(&id) == nil; {
				begin()
				mu.Lock()
				if id == "conflict" {
					conflicts++
				} else {
					acked[id] = true
				}
				mu.Unlock()
			}
		})
		return p
	}
	owner := play("owner", 2, 1<<30)
	<-begun // the child owns the store
	workers := []*exec.Cmd{play("one", 3, moves), play("two", 3, moves)}
	for range kills {
		time.Sleep(time.Duration(300+testkit.Random(t).IntN(700)) * time.Millisecond)
		owner.Process.Kill()
		owner.Wait()
		owner = play(fmt.Sprint("owner", time.Now().UnixNano()), 2, 1<<30)
	}
	for _, w := range workers {
		if err := w.Wait(); err != nil {
			t.Error(err)
		}
	}
	owner.Process.Kill()
	owner.Wait()
	all.Wait()
	if half, lost := halves(t, dir, "account", 2, acked); half+lost > 0 {
		t.Errorf("got %d partial batches, and %d acknowledged ones lost", half, lost)
	}
	st, err = embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local"})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	sum := int64(0)
	for n := range accounts {
		rec, err := st.Log.Last(t.Context(), account(n))
		if err != nil {
			t.Fatal(err)
		}
		have, err := strconv.ParseInt(string(rec.Data), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += have
	}
	if sum != accounts*1000 {
		t.Errorf("got the sum %d, want %d", sum, accounts*1000)
	}
	if len(acked) < 6*moves || conflicts == 0 {
		t.Errorf("got %d moves and %d conflicts: the test showed nothing", len(acked), conflicts)
	}
	t.Logf("%d moves, %d conflicts, %d kills", len(acked), conflicts, kills)
}

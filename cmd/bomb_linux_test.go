package cmd_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/internal/testkit"
)

// bombs is a store that a version without bounds acknowledged. Session bomb has ten turns and three events that each
// keep all of them a thousand times. Session doubling has forty events that each keep all turns twice. Session lists
// has a result of 250 KB that names ten turns of 100 KB 5,000 times. In that version, ls needed more than 5 GB.
const bombs = "testdata/bomb/store.tar.gz"

// bombMemory is far above the need of each command on such a store.
const bombMemory = 600 << 20

// Each command answers from such a store in bounded memory, and the sessions can be used again.
func TestStoreWithBombs(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	mustUnpack(t, bombs, filepath.Dir(store))
	t.Run("B-01 a store that holds bombs", func(t *testing.T) {
		for i, b := range []struct {
			command string
			code    int
			want    string // part of the output
		}{
			{"ls", 0, "doubling  conversation     10"},
			{"ls -o json", 0, `"turns": 10`},
			{"search lighthouse", 0, "doubling"},
			{"stats", 0, "total"},
			{"show bomb", 0, "#10  @46"},
			{"show doubling --last 2", 0, "#10  @5"},
			{"log bomb", 0, "items 0 and 1 both keep turn 0: an event keeps a turn at most once"},
			{"diff bomb @46 head", 0, ""},
			{"runs lists", 5, "r2"},
			{"runs lists", 5, "session lists: 1 record cannot be read: [@3]"},
			{"show lists --run r2", 0, `"score": 1`},
			{"show lists --run r1", 5, "damaged record @3: data.lists: the value has more than 67108864 bytes"},
			{"export --all --format markdown -C " + t.TempDir(), 0, ""},
			{"verify", 0, "all views match the log"},
			{"rebuild", 0, ""},
			{"verify", 0, "all views match the log"},
			{"fork bomb", 0, "with 10 turns"},
			{"rewind doubling --to #4 -y", 0, ""},
			{"show doubling --last 9", 0, "#10  @5"},
		} {
			if i < 16 && !testkit.Plays(i, 5) {
				continue
			}
			mustAnswer(t, store, b.command, b.code, b.want)
		}
	})
	t.Run("B-01 no further bomb", func(t *testing.T) { mustRefuseBombs(t, store) })
	t.Run("B-01 one value many times", mustNameAgain)
}

// mustNameAgain appends a value of 9 MiB 30 times to one session. The bound admits 29: the last one is refused, all
// others are in effect, and each may be sent again.
func mustNameAgain(t *testing.T) {
	testkit.OnlyFull(t, "TestBoundsOfBlobs folds one value that is named many times")
	store := filepath.Join(t.TempDir(), "store")
	turn := `{"role":"user","content":"lighthouse ` + strings.Repeat("x y ", 9<<18) + `"}`
	sum := sha256.Sum256([]byte(`{"entries":[{"thread":"main","turn":` + turn + `}]}`))
	var named []string
	for i := range 27 {
		named = append(named, fmt.Sprintf(`{"specversion":"1.0","id":"named-%d","source":"urn:test","type":"tally.turn.appended.v1","subject":"session/s",`+
			`"datacontenttype":"application/json","dataschema":"urn:tally:schema:turn.appended.v1","dataref":"urn:tally:blob:%x"}`, i, sum))
	}
	appendLines := func(code int, want string, lines ...string) {
		t.Helper()
		c := command(t.Context(), store, "tally", "append", "s", "--key", "k")
		c.Stdin = strings.NewReader(strings.Join(lines, "\n"))
		out, err := c.CombinedOutput()
		if got := c.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), want) {
			t.Fatalf("got exit code %d, want %d: %v\n%.2000s", got, code, err, out)
		}
	}
	appendLines(0, "3 events appended", turn, turn, turn)
	appendLines(3, "line 27: append to session s: invalid dataref: with "+fmt.Sprintf("%x", sum[:4])+", records of the session name 2736", named...)
	appendLines(0, "26 events appended", named[:26]...)
	mustAnswer(t, store, "ls -o json", 0, `"turns": 29`)
	mustAnswer(t, store, "log s", 0, "main  user: lighthouse x y")
	mustAnswer(t, store, "rewind s --to #4 -y", 0, "")
	mustAnswer(t, store, "verify", 0, "all views match the log")
}

// mustAnswer runs a command in bounded memory.
func mustAnswer(t *testing.T, store, line string, code int, want string) {
	t.Helper()
	var out bytes.Buffer
	c := command(t.Context(), store, "tally", strings.Fields(line)...)
	c.Stdout, c.Stderr = &out, &out
	most, err := runPeak(c)
	if got := c.ProcessState.ExitCode(); got != code {
		t.Errorf("%s: got exit code %d, want %d: %v\n%.2000s", line, got, code, err, out.String())
	}
	if !strings.Contains(out.String(), want) {
		t.Errorf("%s: want %q in the output:\n%.2000s", line, want, out.String())
	}
	if most > bombMemory {
		t.Errorf("%s: got %d bytes of memory", line, most)
	}
}

const bombTurn = `{"specversion":"1.0","id":"%[1]s","source":"urn:test","type":"tally.thread.replaced.v1","subject":"session/good","datacontenttype":"application/json",
"data":{"threads":{"main":{"items":[{"keep":[0,2]},{"keep":[1,3]}]}},"others":"keep","reason":"save"}}`

// mustRefuseBombs appends in each way: by the command, as a user of a store that listens, and with that user's own
// client.
func mustRefuseBombs(t *testing.T, store string) {
	const why = "items 0 and 1 both keep turn 1"
	event := strings.ReplaceAll(fmt.Sprintf(bombTurn, "again"), "\n", "")
	refused := func(c *exec.Cmd) {
		t.Helper()
		c.Stdin = strings.NewReader(event + "\n")
		if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), why) {
			t.Errorf("%v: got %v\n%s", c.Args, err, out)
		}
	}
	refused(command(t.Context(), store, "tally", "append", "good", "--expect", "@1"))

	address, users := freeAddress(t), filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(users, []byte("ann:secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	serve := command(ctx, store, "tally", "serve", "-o", "json", "--listen", address, "--users", users)
	out, err := serve.StdoutPipe()
	if err == nil {
		err = serve.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		serve.Process.Signal(os.Interrupt)
		serve.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("serve: got %q, %v", line, err)
	}
	nc, err := nats.Connect("nats://"+address, nats.UserInfo("ann", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	refused(remote(ctx, t.TempDir(), "tally", "append", "good", "--expect", "@1", "--server", "nats://"+address))
	answer, err := nc.Request("tally.api.v1.append", []byte(`{"subject":"session/good","expect":{"at":1},"events":[`+event+`]}`), time.Minute)
	if err != nil || !bytes.Contains(answer.Data, []byte(why)) || !bytes.Contains(answer.Data, []byte(`"invalid"`)) {
		t.Errorf("a client's own append: got %v %s", err, answer.Data)
	}
}

package embedded_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// apiVerbs are the server's own requests, as it exports them.
var apiVerbs = []string{
	server.JSApiAccountInfo, server.JSApiStreamCreate, server.JSApiStreamUpdate, server.JSApiStreams, server.JSApiStreamList,
	server.JSApiStreamInfo, server.JSApiStreamDelete, server.JSApiStreamPurge, server.JSApiStreamSnapshot, server.JSApiStreamRestore,
	server.JSApiMsgDelete, server.JSApiMsgGet, server.JSApiConsumerCreate, server.JSApiConsumerCreateEx, server.JSApiDurableCreate,
	server.JSApiConsumers, server.JSApiConsumerList, server.JSApiConsumerInfo, server.JSApiConsumerDelete, server.JSApiConsumerPause,
	server.JSApiConsumerUnpin, server.JSApiStreamRemovePeer, server.JSApiStreamEvacuatePeer, server.JSApiStreamCancelMove,
	server.JSApiStreamLeaderStepDown, server.JSApiConsumerLeaderStepDown, server.JSApiConsumerRemovePeer, server.JSApiConsumerEvacuatePeer,
	server.JSApiLeaderStepDown, server.JSApiRemoveServer, server.JSApiEvacuateServer, server.JSApiMetaRescue, server.JSApiAccountPurge,
	server.JSApiServerStreamMove, server.JSApiServerStreamCancelMove, server.JSDirectMsgGet,
	"$JS.API.CONSUMER.CREATE.*.*", "$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.API.CONSUMER.RESET.*.*",
}

// literal returns a subject of the log's first stream that matches a pattern.
func literal(pattern string) string {
	tokens := strings.Split(pattern, ".")
	n := 0
	for i, token := range tokens {
		if token == "*" || token == ">" {
			tokens[i] = []string{"TALLY_1", "evil", "x", "y"}[min(n, 3)]
			n++
		}
	}
	return strings.Join(tokens, ".")
}

// right is a row of the table in docs/servers.md.
type right struct{ subject, owner, attached, user string }

func mustReadRights(t *testing.T) (rights []right) {
	t.Helper()
	text, err := os.ReadFile("../docs/servers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "### Permissions")
	_, table, _ = strings.Cut(table, "|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			t.Fatalf("a row with %d cells: %s", len(cells), line)
		}
		r := right{strings.Split(cells[0], "`")[1], strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])}
		if strings.Contains(cells[0], "all others") {
			for _, verb := range apiVerbs {
				if !slices.ContainsFunc(rights, func(have right) bool { return server.SubjectsCollide(have.subject, verb) }) {
					rights = append(rights, right{verb, r.owner, r.attached, r.user})
				}
			}
			continue
		}
		rights = append(rights, r)
	}
	if len(rights) < 40 {
		t.Fatalf("docs/servers.md has only %d rights: %v", len(rights), rights)
	}
	return rights
}

// stranger is a connection of a process that is not the owner, over the plain NATS protocol.
type stranger struct {
	*nats.Conn
	mu     sync.Mutex
	denied []string
}

func mustConnect(t *testing.T, url string, opts ...nats.Option) *stranger {
	t.Helper()
	s := &stranger{}
	opts = append(opts, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.denied = append(s.denied, err.Error())
	}))
	var err error
	if s.Conn, err = nats.Connect(url, opts...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// refused calls do and reports whether the server denied permission.
func (s *stranger) refused(t *testing.T, do func() error) bool {
	t.Helper()
	s.mu.Lock()
	s.denied = nil
	s.mu.Unlock()
	// The server answers in order, so any denial has arrived by now. The client calls its handler a moment later.
	if err := errors.Join(do(), s.Flush()); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		s.mu.Lock()
		n := len(s.denied)
		s.mu.Unlock()
		if n > 0 {
			return true
		}
		if s.LastError() != nil && strings.Contains(s.LastError().Error(), "Permissions") {
			time.Sleep(time.Millisecond)
			continue
		}
		time.Sleep(500 * time.Microsecond)
	}
	return false
}

// strangers connects to an owner that listens: as a user, as an attached process, and as bob, another user.
func strangers(t *testing.T, dir string) (s *embedded.Server, them map[string]func(t *testing.T) *stranger, bob *stranger) {
	t.Helper()
	var url string
	l := &embedded.Listen{Address: "127.0.0.1:0", Users: []embedded.Account{{Name: "ann", Password: "a"}, {Name: "bob", Password: "b"}}, Ready: func(at string) { url = at }}
	s = mustStart(t, embedded.ServerOptions{Dir: dir, Listen: l})
	user, password := mustReadToken(t, dir)
	return s, map[string]func(t *testing.T) *stranger{
		"attached": func(t *testing.T) *stranger { return mustConnect(t, s.URL(), nats.UserInfo(user, password)) },
		"user":     func(t *testing.T) *stranger { return mustConnect(t, url, nats.UserInfo("ann", "a")) },
	}, mustConnect(t, url, nats.UserInfo("bob", "b"))
}

// Each connection may use a subject exactly as docs/servers.md says.
func TestRightsAreAsDocumented(t *testing.T) {
	t.Parallel()
	_, them, _ := strangers(t, t.TempDir())
	rights := mustReadRights(t)
	for name, connect := range them {
		t.Run(name, func(t *testing.T) {
			for _, r := range rights {
				word := r.user
				if name == "attached" {
					word = r.attached
				}
				within := word == "among their own"
				asks := within || strings.HasPrefix(word, "asks")
				listens := within || word == "listens" || word == "is answered"
				if !asks && !listens && word != "-" {
					t.Fatalf("%s: unknown right %q", r.subject, word)
				}
				nc := connect(t)
				subject := literal(r.subject)
				if got := !nc.refused(t, func() error { return nc.Publish(subject, []byte("{}")) }); got != asks {
					t.Errorf("publishing to %s: got allowed %v, want %q", subject, got, word)
				}
				if got := !nc.refused(t, func() error { _, err := nc.SubscribeSync(subject); return err }); got != listens {
					t.Errorf("subscribing to %s: got allowed %v, want %q", subject, got, word)
				}
				nc.Close()
			}
			nc := connect(t)
			for _, all := range []string{">", "*.>", "tally.>", "$JS.>", "$SRV.>", "_R_.>"} {
				if !nc.refused(t, func() error { _, err := nc.SubscribeSync(all); return err }) {
					t.Errorf("subscribing to %s got no error, want a denied permission", all)
				}
			}
		})
	}
}

// filesOf returns a hash of each of the server's files below a directory.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(filepath.Join(dir, "jetstream"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "index.db") {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = fmt.Sprintf("%x", sha256.Sum256(text))
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return files
}

// create asks for a consumer that has all records, with further members of its configuration.
func create(nc *stranger, name, more string) (string, error) {
	m, err := nc.Request("$JS.API.CONSUMER.CREATE.TALLY_1."+name, fmt.Appendf(nil,
		`{"stream_name":"TALLY_1","config":{"name":%q,"ack_policy":"none","num_replicas":1%s}}`, name, more), time.Minute)
	if err != nil {
		return "", err
	}
	return string(m.Data), nil
}

// F-1, F-2, F-5: others make every request that they may make, with every subject that they must not publish to as its
// reply subject, and as the delivery subject of a consumer. The log stays unchanged, no other user receives anything,
// and later reads return the stored records.
func TestAnswersReachNothingOfTheOwner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, them, bob := strangers(t, dir)
	sub := events.Session("", "s1")
	// The data look like a valid answer to several requests.
	forged := turn("forged", "x")
	forged.Data = []byte(`{"durable":4000000000}`)
	forged.Type = "com.example.note"
	mustAppend(t, s.Log(), sub, turn("a", "x"), forged, turn("c", "z"))
	heard, err := bob.SubscribeSync("_INBOX.>")
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"tally.api.v1.watermark.moved", "tally.api.v1.segments"} {
		if _, err := bob.ChanSubscribe(subject, make(chan *nats.Msg, 1)); err != nil {
			t.Fatal(err)
		}
	}
	notices, err := bob.SubscribeSync("tally.api.v1.watermark.moved")
	if err != nil {
		t.Fatal(err)
	}
	if err := bob.Flush(); err != nil {
		t.Fatal(err)
	}
	before := filesOf(t, dir)
	rights := mustReadRights(t)
	var asked, aims []string
	for _, r := range rights {
		if strings.HasPrefix(r.user, "asks") && !strings.Contains(r.subject, "CREATE") {
			asked = append(asked, r.subject)
		}
		if r.subject != "_INBOX.>" {
			aims = append(aims, literal(r.subject))
		}
	}
	aims = append(aims, sub.NATS(), "tally.v1.0a.default.session.s1", "_INBOX.bob.1", "tally.desk.v1.consumer.0.TALLY_1.evil", "$JS.ACK.TALLY_1.evil.1.1.1.1.0")
	for name, connect := range them {
		t.Run(name, func(t *testing.T) {
			nc := connect(t)
			bodies := map[string]string{
				"$JS.API.STREAM.MSG.GET.*":      `{"seq":2}`,
				"$JS.API.DIRECT.GET.>":          `{"seq":2}`,
				"$JS.API.CONSUMER.MSG.NEXT.*.*": `{"batch":3,"no_wait":true}`,
			}
			tried := 0
			for i, aim := range aims {
				for _, ask := range asked {
					subject := literal(ask)
					switch ask {
					case "$JS.API.DIRECT.GET.>":
						subject = "$JS.API.DIRECT.GET.TALLY_1"
					case "$JS.API.CONSUMER.MSG.NEXT.*.*":
						// One consumer has all records. The other has none, so the server reports that with an empty
						// body.
						for _, more := range []string{"", `,"deliver_policy":"new"`} {
							full := fmt.Sprintf("e%d-%d", i, len(more))
							if answer, err := create(nc, full, more); err != nil || strings.Contains(answer, `"error"`) {
								t.Fatalf("%s, %v", answer, err)
							}
							if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.TALLY_1."+full, aim, []byte(bodies[ask])); err != nil {
								t.Fatal(err)
							}
							tried++
						}
						continue
					}
					if err := nc.PublishRequest(subject, aim, []byte(bodies[ask])); err != nil {
						t.Fatal(err)
					}
					tried++
				}
				// The owner itself answers a request to create a consumer.
				for n, body := range []string{`{"stream_name":"TALLY_1","config":{"name":"r0","ack_policy":"none"}}`, `{}`} {
					if err := nc.PublishRequest(fmt.Sprintf("$JS.API.CONSUMER.CREATE.TALLY_1.r%d", n), aim, []byte(body)); err != nil {
						t.Fatal(err)
					}
					tried++
				}
				for _, more := range []string{"", `,"headers_only":true`} {
					answer, err := create(nc, "evil", fmt.Sprintf(`,"deliver_subject":%q%s`, aim, more))
					if err != nil || !strings.Contains(answer, `"code":403`) {
						t.Fatalf("a consumer that delivers to %s: got %s, %v, want code 403", aim, answer, err)
					}
					tried++
				}
				if answer, err := create(nc, "evil", `,"durable_name":"evil"`); err != nil || !strings.Contains(answer, `"code":403`) {
					t.Fatalf("a durable consumer: got %s, %v, want code 403", answer, err)
				}
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d requests, %d aims", tried, len(aims))
			// The server answers in order, so these answers come after those to all requests above.
			for range 3 {
				if _, err := nc.Request("tally.api.v1.watermark", nil, time.Minute); err != nil {
					t.Fatal(err)
				}
				if _, err := nc.Request("$JS.API.STREAM.INFO.TALLY_1", nil, time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			if head, err := s.Log().Head(t.Context()); err != nil || head != 3 {
				t.Errorf("got head %v, %v, want 3", head, err)
			}
			if ids := mustRead(t, s.Log(), events.Range{Subject: sub}); strings.Join(ids, " ") != "a forged c" {
				t.Errorf("read: got %v, want a forged c", ids)
			}
			if after := filesOf(t, dir); !maps.Equal(before, after) {
				t.Errorf("the server's files changed: %v", after)
			}
			if m, err := heard.NextMsg(10 * time.Millisecond); err == nil {
				t.Errorf("another user received %s on %s", m.Subject, m.Data)
			}
			// The owner's own notice of the appends above may arrive late.
			if m, err := notices.NextMsg(10 * time.Millisecond); err == nil && string(m.Data) != `{"durable":3}` {
				t.Errorf("another user received the notice %s %s", m.Subject, m.Data)
			}
		})
	}
	if ack := mustAppend(t, s.Log(), sub, turn("d", "after")); ack.First != 4 || ack.Durability != log.Durable {
		t.Errorf("an append afterwards: got %+v, want @4, durable", ack)
	}
}

// F-7: the owner bounds the number, the lifetime and the storage of other processes' consumers.
func TestConsumersOfOthersAreBounded(t *testing.T) {
	testkit.NotUnderRace(t) // TestRightsAreAsDocumented runs the same code there
	t.Parallel()
	s, them, bob := strangers(t, t.TempDir())
	mustAppend(t, s.Log(), events.Session("", "s1"), turn("a", "x"))
	nc := them["user"](t)
	for name, more := range map[string]string{"ack": "", "idle": `,"inactive_threshold":86400000000000`, "disk": `,"mem_storage":false`} {
		answer, err := create(nc, name, more)
		var reply struct {
			Config struct {
				Inactive time.Duration `json:"inactive_threshold"`
				Memory   bool          `json:"mem_storage"`
			}
		}
		if err != nil || json.Unmarshal([]byte(answer), &reply) != nil || !reply.Config.Memory || reply.Config.Inactive > 5*time.Minute {
			t.Errorf("%s: got %s, %v, want a consumer in memory that expires", name, answer, err)
		}
	}
	for _, body := range []string{
		`{"stream_name":"TALLY_1","config":{"name":"x","ack_policy":"explicit","num_replicas":1}}`,
		`{"stream_name":"TALLY_2","config":{"name":"x","ack_policy":"none","num_replicas":1}}`,
		`{"stream_name":"TALLY_1","config":{"name":"y","ack_policy":"none","num_replicas":1}}`,
		`{"stream_name":"TALLY_1","config":{"name":"x","ack_policy":"none","num_replicas":1},"action":"update"}`,
		`{"stream_name":"TALLY_1","config":{"name":"x","ack_policy":"none","num_replicas":1,"filter_subject":"tally.v1.>"}} x`,
		`{`, `[]`, `null`, ``, strings.Repeat(" ", 65<<10),
	} {
		m, err := nc.Request("$JS.API.CONSUMER.CREATE.TALLY_1.x", []byte(body), time.Minute)
		if err != nil || !strings.Contains(string(m.Data), `"code":403`) {
			t.Errorf("%.80s: got %s, %v, want code 403", body, m.Data, err)
		}
	}
	for i := range embedded.MaxConsumers { // a consumer that the server refused does not count
		stream := fmt.Sprintf("NONE_%d", i)
		body := fmt.Sprintf(`{"stream_name":%q,"config":{"name":"x","ack_policy":"none","num_replicas":1}}`, stream)
		m, err := nc.Request("$JS.API.CONSUMER.CREATE."+stream+".x", []byte(body), time.Minute)
		if err != nil || !strings.Contains(string(m.Data), `"err_code":10059`) {
			t.Fatalf("%s: got %s, %v, want code 10059", stream, m.Data, err)
		}
	}
	refused, made := "", 0
	for i := 0; i < embedded.MaxConsumers+3 && refused == ""; i++ {
		answer, err := create(nc, fmt.Sprintf("c%d", i), "")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(answer, `"error"`) {
			refused = answer
		} else {
			made++
		}
	}
	if !strings.Contains(refused, "consumers already") || made < embedded.MaxConsumers-3 {
		t.Errorf("after %d consumers: got %q, want a refusal", made, refused)
	}
	if answer, err := create(bob, "b", ""); err != nil || strings.Contains(answer, `"error"`) {
		t.Errorf("another user's consumer: got %s, %v, want it created", answer, err)
	}
	for i := range 10 { // deleted consumers no longer count
		if m, err := nc.Request(fmt.Sprintf("$JS.API.CONSUMER.DELETE.TALLY_1.c%d", i), nil, time.Minute); err != nil || !strings.Contains(string(m.Data), "true") {
			t.Fatalf("%v", err)
		}
	}
	time.Sleep(1100 * time.Millisecond) // the owner asks the server at most once a second
	if answer, err := create(nc, "again", ""); err != nil || strings.Contains(answer, `"error"`) {
		t.Errorf("after deletes: got %s, %v, want it created", answer, err)
	}
}

// F-7: the owner removes durable consumers that an earlier version left in the store.
func TestDurableConsumersAreRemoved(t *testing.T) {
	dir := t.TempDir()
	s := mustStart(t, embedded.ServerOptions{Dir: dir})
	mustAppend(t, s.Log(), events.Session("", "s1"), turn("a", "x"))
	mustClose(t, s)
	foreign, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	go foreign.Start()
	if !foreign.ReadyForConnections(time.Minute) {
		t.Fatal("the server did not start in time")
	}
	nc, err := nats.Connect("", nats.InProcessServer(foreign))
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := js.CreateConsumer(t.Context(), "TALLY_1", jetstream.ConsumerConfig{Durable: fmt.Sprintf("c%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	nc.Close()
	foreign.Shutdown()
	foreign.WaitForShutdown()
	obs := filepath.Join(dir, "jetstream", "$G", "streams", "TALLY_1", "obs")
	if entries, err := os.ReadDir(obs); err != nil || len(entries) != 3 {
		t.Fatalf("got %d consumers, %v", len(entries), err)
	}
	s = mustStart(t, embedded.ServerOptions{Dir: dir})
	if entries, err := os.ReadDir(obs); err == nil && len(entries) != 0 {
		t.Errorf("got %d consumers, want no durable one", len(entries))
	}
	if ids := mustRead(t, s.Log(), events.Range{}); len(ids) != 1 {
		t.Errorf("read: got %v", ids)
	}
}

package embedded_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/testkit"
)

// contract lists what tally assumes about nats-server beyond its documented interface, each with a test on the server
// of this build. docs/nats-server.md says where each assumption is used, and what would fail without it.
var contract = []struct {
	promise string
	hold    func(t *testing.T)
}{
	{"The version is one whose files the tests have read", contractVersion},
	{"A stream is a folder below jetstream/$G/streams, with meta.inf and its HighwayHash in meta.sum", contractFolders},
	{"A stream begins with its first sequence, and goes on from there", contractFirst},
	{"A record has the layout and the hash that natsfile reads", contractRecords},
	{"A message is in its block when it is acknowledged", contractAcknowledged},
	{"Blocks are numbered one after the other, and only the newest is written to", contractBlocks},
	{"A closed stream has an index that is not older than its blocks, and is opened without reading them", contractIndex},
	{"A record of a closed stream may be rewritten with its length, and the index ends with the hash of the last record and with its own", contractRewritten},
	{"A stream without an index is read, and what follows a damaged record in its block is thrown away", contractReread},
	{"What is gone from the end of a stream is listed as deleted, or lies behind its last sequence", contractDeleted},
	{"DisableJetStream closes the streams of an account and writes their indexes, EnableJetStream opens them", contractReopen},
	{"A write that fails is in the server's log as JetStream failed to store a msg on stream", contractFailedWrite},
	{"JetStream that is shut down says JetStream Shutdown when all streams are closed, and EnableJetStream opens them", contractShutdown},
	{"The refusal of an expectation ends with the subject's last sequence behind a colon", contractConflict},
	{"The count of a subject in the information about a stream includes records that cannot be read", contractCount},
	{"A request for messages with bytes to spare ends with Batch Completed", contractBatch},
	{"A request for messages that is exactly full ends without a word", contractFull},
	{"A request from another account has a reply subject of the server's, from which the answer goes to that account alone", contractAccounts},
	{"CustomClientAuthentication alone decides who is in which account, and RegisterAccount makes one in a server that runs", contractRegister},
	{"JetStream answers through the export $JS.API.> of the system account, which forgets after its response threshold", contractForgets},
}

func TestServerContract(t *testing.T) {
	for _, c := range contract {
		t.Run(c.promise, c.hold)
	}
}

func TestServerContractIsDocumented(t *testing.T) {
	var promises []string
	for _, c := range contract {
		promises = append(promises, c.promise)
	}
	mustBeDocumented(t, "Assumption", 3, promises)
}

// mustBeDocumented fails unless a table of docs/nats-server.md, identified by its first heading and its number of
// columns, lists the tests' promises in the same order.
func mustBeDocumented(t *testing.T, heading string, columns int, promises []string) {
	t.Helper()
	var rows []string
	for line := range strings.Lines(string(mustReadFile(t, filepath.Join("..", "docs", "nats-server.md")))) {
		if cells := strings.Split(line, " | "); len(cells) == columns && !strings.Contains(line, "---") && cells[0] != "| "+heading {
			rows = append(rows, strings.ReplaceAll(strings.TrimPrefix(cells[0], "| "), "`", ""))
		}
	}
	if !slices.Equal(promises, rows) {
		t.Errorf("got on the page\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(promises, "\n"))
	}
}

// plainServer is a server without tally.
type plainServer struct {
	*server.Server
	t   testing.TB
	dir string
	nc  *nats.Conn
	js  jetstream.JetStream
	log serverMessages
}

// serverMessages is a logger that keeps the server's messages.
type serverMessages struct {
	mu    sync.Mutex
	lines []string
}

func (h *serverMessages) hear(format string, v ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(format, v...))
}

func (h *serverMessages) Noticef(format string, v ...any) { h.hear(format, v...) }
func (h *serverMessages) Warnf(format string, v ...any)   { h.hear(format, v...) }
func (h *serverMessages) Fatalf(format string, v ...any)  { h.hear(format, v...) }
func (h *serverMessages) Errorf(format string, v ...any)  { h.hear(format, v...) }
func (h *serverMessages) Debugf(string, ...any)           {}
func (h *serverMessages) Tracef(string, ...any)           {}

func runPlain(t testing.TB, dir string) *plainServer {
	t.Helper()
	ns, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	p := &plainServer{Server: ns, t: t, dir: dir}
	ns.SetLoggerV2(&p.log, false, false, false)
	go ns.Start()
	t.Cleanup(p.stop)
	if !ns.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	if p.nc, err = nats.Connect("", nats.InProcessServer(ns)); err == nil {
		p.js, err = jetstream.New(p.nc)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *plainServer) stop() {
	if p.nc != nil {
		p.nc.Close()
	}
	if p.Server == nil {
		return
	}
	p.Shutdown()
	p.WaitForShutdown()
}

// stream creates a stream of small blocks.
func (p *plainServer) stream() jetstream.Stream {
	p.t.Helper()
	s, err := p.js.CreateStream(p.t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"tally.>"}, FirstSeq: 100, MaxBytes: 127_000})
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// publish publishes messages of 1,000 bytes and more.
func (p *plainServer) publish(n int) {
	p.t.Helper()
	for i := range n {
		m := &nats.Msg{Subject: fmt.Sprint("tally.", i%3), Data: bytes.Repeat([]byte{byte(i)}, 1000)}
		if i%2 == 0 {
			m.Header = nats.Header{"A": {fmt.Sprint(i)}, "B": {strings.Repeat("b", i)}}
		}
		if _, err := p.js.PublishMsg(p.t.Context(), m); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *plainServer) msgs() string { return natsfile.Messages(p.dir, "S") }

func (p *plainServer) blocks() []int {
	p.t.Helper()
	numbers, err := natsfile.Numbers(p.msgs())
	if err != nil {
		p.t.Fatal(err)
	}
	return numbers
}

func (p *plainServer) state(opts ...jetstream.StreamInfoOpt) jetstream.StreamState {
	p.t.Helper()
	s, err := p.js.Stream(p.t.Context(), "S")
	if err != nil {
		p.t.Fatal(err)
	}
	info, err := s.Info(p.t.Context(), opts...)
	if err != nil {
		p.t.Fatal(err)
	}
	return info.State
}

func contractVersion(t *testing.T) {
	if !natsfile.Known(server.VERSION) {
		t.Errorf("nats-server %s is not known: docs/nats-server.md says how to add a version", server.VERSION)
	}
	if natsfile.Known("2.150.0") || natsfile.Known("3.15.0") || natsfile.Known("") || !natsfile.Known("2.15.99") {
		t.Error("versions must differ exactly by their minor number")
	}
}

func contractFolders(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	names, err := natsfile.Folders(p.dir)
	if err != nil || fmt.Sprint(names) != "[S]" {
		t.Fatalf("got streams %v, %v", names, err)
	}
	stream := filepath.Join(natsfile.Streams(p.dir), "S")
	if sum := string(mustReadFile(t, filepath.Join(stream, natsfile.SumFile))); sum != natsfile.Checksum("S", mustReadFile(t, filepath.Join(stream, natsfile.MetaFile))) {
		t.Errorf("got checksum %s", sum)
	}
}

func contractFirst(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	if first, err := natsfile.FirstSequence(p.dir, "S"); err != nil || first != 100 {
		t.Errorf("got first sequence %d, %v", first, err)
	}
	if st := p.state(); st.LastSeq != 99 {
		t.Errorf("before the first message: got %+v", st)
	}
	p.publish(2)
	if st := p.state(); st.FirstSeq != 100 || st.LastSeq != 101 {
		t.Errorf("got state %+v", st)
	}
}

func contractRecords(t *testing.T) {
	p := runPlain(t, t.TempDir())
	s := p.stream()
	p.publish(80)
	for _, n := range p.blocks() {
		data := mustReadFile(t, natsfile.Path(p.msgs(), n))
		if last, sound := natsfile.Sound("S", n, data); !sound || last == 0 {
			t.Errorf("block %d: not intact", n)
		}
	}
	r, err := natsfile.NewReader(p.msgs(), "S", 100, 179, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for seq := uint64(100); seq < 180; seq++ {
		have, err := r.Next()
		want, askErr := s.GetMsg(t.Context(), seq)
		if err := errors.Join(err, askErr); err != nil {
			t.Fatal(err)
		}
		header, _ := nats.DecodeHeadersMsg([]byte(have.Header))
		if have.Header == "" {
			header = nil
		}
		if have.Seq != seq || have.Subject != want.Subject || !bytes.Equal(have.Data, want.Data) || have.Time != want.Time.UnixNano() || fmt.Sprint(header) != fmt.Sprint(want.Header) {
			t.Fatalf("message %d: %d %s %v, %d bytes, want %d %s %v, %d bytes", seq, have.Time, have.Subject, header, len(have.Data), want.Time.UnixNano(), want.Subject, want.Header, len(want.Data))
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	// A removed message also leaves a record: an intact one that is no longer a message.
	if err := errors.Join(s.DeleteMsg(t.Context(), 178), s.SecureDeleteMsg(t.Context(), 177)); err != nil {
		t.Fatal(err)
	}
	n := slices.Max(p.blocks())
	records, gaps := natsfile.Scan("S", n, mustReadFile(t, natsfile.Path(p.msgs(), n)))
	if len(gaps) > 0 || slices.ContainsFunc(records, func(r natsfile.Record) bool { return r.Seq == 177 }) {
		t.Errorf("after a removal: got %v, %v", records, gaps)
	}
}

func contractAcknowledged(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	for i := range 60 {
		p.publish(1)
		n := slices.Max(p.blocks())
		if last, sound := natsfile.Sound("S", n, mustReadFile(t, natsfile.Path(p.msgs(), n))); !sound || last != uint64(100+i) {
			t.Fatalf("message %d was acknowledged: got a block that ends with %d (intact: %v)", 100+i, last, sound)
		}
	}
}

func contractBlocks(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	var before map[int][]byte
	for range 20 {
		p.publish(5)
		now := make(map[int][]byte)
		numbers := p.blocks()
		for i, n := range numbers {
			if n != numbers[0]+i {
				t.Fatalf("got blocks %v", numbers)
			}
			now[n] = mustReadFile(t, natsfile.Path(p.msgs(), n))
		}
		for n, old := range before {
			_, later := before[n+1]
			if !bytes.HasPrefix(now[n], old) || later && len(now[n]) != len(old) {
				t.Fatalf("block %d was written again", n)
			}
		}
		before = now
	}
	if len(before) < 3 {
		t.Errorf("got %d blocks: the test showed nothing", len(before))
	}
}

// spoil damages the data of a record in the first block, as a failing disk does: the times of the file stay.
func (p *plainServer) spoil() (records int) {
	p.t.Helper()
	path := natsfile.Path(p.msgs(), p.blocks()[0])
	data := mustReadFile(p.t, path)
	list, _ := natsfile.Scan("S", p.blocks()[0], data)
	data[list[1].End-100] ^= 6
	rewriteInPlace(p.t, path, data)
	return len(list)
}

func contractIndex(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	p.publish(80)
	p.stop()
	if n, err := natsfile.Unindexed(p.dir, "S"); err != nil || n != 0 {
		t.Fatalf("got %d bytes without index, %v", n, err)
	}
	p.spoil()
	p = runPlain(t, p.dir)
	if st := p.state(); st.Msgs != 80 {
		t.Errorf("the blocks were read: got %+v", st)
	}
}

func contractRewritten(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	p.publish(80)
	if _, err := p.js.PublishMsg(t.Context(), &nats.Msg{Subject: "tally.0", Header: nats.Header{"A": {"long"}}, Data: []byte(`{"a":"content"}`)}); err != nil {
		t.Fatal(err)
	}
	p.stop()
	numbers := p.blocks()
	number := numbers[len(numbers)-1]
	path := natsfile.Path(p.msgs(), number)
	data := mustReadFile(t, path)
	change := func(m natsfile.Message) (string, []byte, bool, error) {
		return "NATS/1.0\r\n\r\n", []byte("{}"), m.Seq != 180, nil
	}
	w := natsfile.Rewriter{Change: change, Lost: func(uint64, uint64) bool { return false }}
	if changed, err := w.Rewrite("S", number, data); err != nil || !changed {
		t.Fatalf("%v, %v", changed, err)
	}
	if err := natsfile.Replace(path, "S", data); err != nil {
		t.Fatal(err)
	}
	p.spoil()
	p = runPlain(t, p.dir)
	if st := p.state(); st.Msgs != 81 {
		t.Errorf("the blocks were read: got %+v", st)
	}
	s, err := p.js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := s.GetMsg(t.Context(), 180); err != nil || len(m.Header) > 0 || strings.ReplaceAll(string(m.Data), " ", "") != "{}" {
		t.Errorf("the last message is %+v, %v", m, err)
	}
}

func contractReread(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	p.publish(80)
	p.stop()
	n := p.spoil()
	if err := os.Remove(filepath.Join(p.msgs(), natsfile.IndexFile)); err != nil {
		t.Fatal(err)
	}
	p = runPlain(t, p.dir)
	if st := p.state(); int(st.Msgs) != 80-n+1 || st.FirstSeq != 100 || st.LastSeq != 179 {
		t.Errorf("one of %d records in the block is intact: got state %+v", n, st)
	}
}

func contractDeleted(t *testing.T) {
	for _, index := range []bool{true, false} {
		p := runPlain(t, t.TempDir())
		p.stream()
		p.publish(80)
		p.stop()
		first, err := natsfile.Begin(natsfile.Path(p.msgs(), slices.Max(p.blocks())))
		if err == nil {
			err = os.Remove(natsfile.Path(p.msgs(), slices.Max(p.blocks())))
		}
		if err == nil && !index {
			err = os.Remove(filepath.Join(p.msgs(), natsfile.IndexFile))
		}
		if err != nil {
			t.Fatal(err)
		}
		p = runPlain(t, p.dir)
		st := p.state(jetstream.WithDeletedDetails(true))
		for seq := first; seq < 180; seq++ {
			if seq <= st.LastSeq && !slices.Contains(st.Deleted, seq) {
				t.Fatalf("with an index %v: message %d is missing: got state %+v", index, seq, st)
			}
		}
		if st.NumDeleted != len(st.Deleted) || int(st.Msgs) != int(first-100) {
			t.Errorf("with an index %v: got %d messages, %d deleted, %d listed", index, st.Msgs, st.NumDeleted, len(st.Deleted))
		}
		p.stop()
	}
}

func contractReopen(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	p.publish(80)
	if err := p.GlobalAccount().DisableJetStream(); err != nil {
		t.Fatal(err)
	}
	if n, err := natsfile.Unindexed(p.dir, "S"); err != nil || n != 0 {
		t.Errorf("got %d bytes without index, %v", n, err)
	}
	if js, err := p.Jsz(&server.JSzOptions{Accounts: true, Streams: true}); err != nil || slices.ContainsFunc(js.AccountDetails, func(a *server.AccountDetail) bool { return len(a.Streams) > 0 }) {
		t.Errorf("the stream is open: got %v", err)
	}
	if err := p.GlobalAccount().EnableJetStream(nil, nil); err != nil {
		t.Fatal(err)
	}
	p.publish(1)
	if st := p.state(); st.Msgs != 81 || st.LastSeq != 180 {
		t.Errorf("got state %+v", st)
	}
}

func contractFailedWrite(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	p.publish(1)
	if err := os.Rename(p.msgs(), p.msgs()+".away"); err != nil {
		t.Fatal(err)
	}
	for range 80 { // until the server begins another block
		if err := p.nc.Publish("tally.x", make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		p.log.mu.Lock()
		defer p.log.mu.Unlock()
		for _, line := range p.log.lines {
			if strings.HasPrefix(line, "JetStream failed to store a msg on stream") {
				return nil
			}
		}
		return fmt.Errorf("got server log %q", p.log.lines)
	})
}

func contractShutdown(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	p.publish(5)
	c := server.JetStreamConfig{StoreDir: p.dir, Strict: true}
	if err := p.ShutdownJetStream(); err != nil || p.JetStreamEnabled() {
		t.Fatalf("the server still runs: got %v", err)
	}
	p.log.mu.Lock()
	said := slices.Clone(p.log.lines)
	p.log.mu.Unlock()
	if !slices.Contains(said, "JetStream Shutdown") {
		t.Errorf("got server log %q", said)
	}
	if err := p.EnableJetStream(&c); err != nil {
		t.Fatal(err)
	}
	p.publish(5)
	if info, err := p.js.Stream(t.Context(), "S"); err != nil || info.CachedInfo().State.Msgs != 10 {
		t.Errorf("the stream: got %v", err)
	}
}

// byName assigns each client to the account with its name.
type byName struct{ server func() *server.Server }

func (b byName) Check(c server.ClientAuthentication) bool {
	a, err := b.server().LookupAccount(c.GetOpts().Username)
	if err == nil {
		c.RegisterUser(&server.User{Account: a, Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"no"}}}})
	}
	return err == nil
}

// greet connects with a user's name, and returns the server's greeting.
func greet(t *testing.T, s *server.Server, user string) string {
	t.Helper()
	c, err := s.InProcessConn()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(c)
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "CONNECT {\"user\":%q}\r\n", user); err != nil {
		t.Fatal(err)
	}
	said, _ := in.ReadString('\n')
	return said
}

func contractRegister(t *testing.T) {
	var s *server.Server
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, Accounts: []*server.Account{server.NewAccount("$G")},
		CustomClientAuthentication: byName{func() *server.Server { return s }}})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	dial := func(user string) (*nats.Conn, error) {
		return nats.Connect("", nats.InProcessServer(s), nats.UserInfo(user, ""))
	}
	if said := greet(t, s, "late"); !strings.Contains(said, "Authorization Violation") {
		t.Fatalf("a client without an account: got %q", said)
	}
	account, err := s.RegisterAccount("late")
	if err != nil {
		t.Fatal(err)
	}
	own := s.GlobalAccount()
	if err := errors.Join(own.AddServiceExport("ask", nil), account.AddServiceImport(own, "ask", "ask")); err != nil {
		t.Fatal(err)
	}
	mine, err := dial("$G")
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	late, err := dial("late")
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	_, err = mine.Subscribe("ask", func(m *nats.Msg) { _ = m.Respond(nil) })
	if err == nil {
		err = mine.Flush()
	}
	if err == nil {
		_, err = late.Request("ask", nil, time.Minute)
	}
	if err != nil {
		t.Errorf("a service of another account: got %v", err)
	}
	err = errors.Join(late.Publish("no", nil), late.Flush())
	if err != nil || late.LastError() == nil {
		t.Errorf("a publish that the permissions deny: got %v", err)
	}
}

func contractConflict(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	p.publish(5)
	_, err := p.js.Publish(t.Context(), "tally.1", nil, jetstream.WithExpectLastSequencePerSubject(7))
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok || api.ErrorCode != 10071 || !regexp.MustCompile(`^[^:]*: 104$`).MatchString(api.Description) {
		t.Errorf("got %v, want a conflict", err)
	}
}

func contractCount(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	for _, subject := range []string{"tally.first", "tally.lost"} {
		if _, err := p.js.Publish(t.Context(), subject, bytes.Repeat([]byte("x"), 1000)); err != nil {
			t.Fatal(err)
		}
	}
	p.publish(1)
	p.stop()
	p.spoil() // the second record
	p = runPlain(t, p.dir)
	s, err := p.js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := s.GetLastMsgForSubject(t.Context(), "tally.lost"); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("the damaged record: got %v, %v, want ErrMsgNotFound", m, err)
	}
	if n := p.state(jetstream.WithSubjectFilter("tally.lost")).Subjects["tally.lost"]; n != 1 {
		t.Errorf("got a count of %d, want 1", n)
	}
}

// ask requests messages, and returns the sizes of those that arrive within a moment and the server's status text.
func (p *plainServer) ask(request string) (sizes []int, said string) {
	p.t.Helper()
	c, err := p.js.CreateConsumer(p.t.Context(), "S", jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		p.t.Fatal(err)
	}
	inbox := p.nc.NewInbox()
	sub, err := p.nc.SubscribeSync(inbox)
	if err == nil {
		err = p.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S."+c.CachedInfo().Name, inbox, []byte(request))
	}
	if err != nil {
		p.t.Fatal(err)
	}
	defer sub.Unsubscribe()
	for {
		m, err := sub.NextMsg(300 * time.Millisecond)
		if err != nil {
			return sizes, said
		}
		if status := m.Header.Get("Status"); status != "" {
			return sizes, status + " " + m.Header.Get("Description")
		}
		sizes = append(sizes, m.Size())
	}
}

func contractBatch(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	p.publish(9)
	if sizes, said := p.ask(`{"batch":3,"max_bytes":100000}`); len(sizes) != 3 || said != "409 Batch Completed" {
		t.Errorf("got sizes %v, status %q", sizes, said)
	}
}

func contractFull(t *testing.T) {
	p := runPlain(t, t.TempDir())
	p.stream()
	p.publish(9)
	sizes, _ := p.ask(`{"batch":3,"max_bytes":100000}`)
	total := 0
	for _, n := range sizes {
		total += n
	}
	if again, said := p.ask(fmt.Sprintf(`{"batch":9,"max_bytes":%d}`, total)); len(again) != 3 || said != "" {
		t.Errorf("got sizes %v of %d bytes, status %q", again, total, said)
	}
}

func contractAccounts(t *testing.T) {
	own, other := server.NewAccount("$G"), server.NewAccount("other")
	const asked, aim = "service.ask", "aim"
	if err := errors.Join(own.AddServiceExport(asked, nil), other.AddServiceImport(own, asked, asked)); err != nil {
		t.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, Accounts: []*server.Account{own, other},
		Users: []*server.User{{Username: "own", Account: own}, {Username: "other", Account: other}}})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	dial := func(user string) *nats.Conn {
		nc, err := nats.Connect("", nats.InProcessServer(s), nats.UserInfo(user, ""))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	mine, theirs := dial("own"), dial("other")
	here, err := mine.SubscribeSync(aim)
	if err != nil {
		t.Fatal(err)
	}
	requests, err := mine.SubscribeSync(asked)
	if err != nil {
		t.Fatal(err)
	}
	there, err := theirs.SubscribeSync(aim)
	if err := errors.Join(err, mine.Flush(), theirs.Flush(), theirs.PublishRequest(asked, aim, []byte("q"))); err != nil {
		t.Fatal(err)
	}
	m, err := requests.NextMsg(testkit.Patience(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(m.Reply, "_R_.") {
		t.Errorf("got reply subject %q", m.Reply)
	}
	if err := m.Respond([]byte("a")); err != nil {
		t.Fatal(err)
	}
	if m, err := there.NextMsg(testkit.Patience(time.Minute)); err != nil || string(m.Data) != "a" {
		t.Errorf("the answer: got %v", err)
	}
	if err := mine.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := here.Pending(); n != 0 {
		t.Error("the answer also reached the responder's own account")
	}
}

func contractForgets(t *testing.T) {
	gone := forgetful(t)
	mustCollect(t, "a server that was stopped", func() bool { return gone.Value() == nil })
}

// forgetful runs a server that forgets answers at once, and stops it.
func forgetful(t *testing.T) weak.Pointer[server.Server] {
	p := runPlain(t, t.TempDir())
	if err := p.SystemAccount().SetServiceExportResponseThreshold("$JS.API.>", 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	p.stream()
	gone := weak.Make(p.Server)
	p.stop()
	p.Server, p.nc, p.js = nil, nil, nil
	return gone
}

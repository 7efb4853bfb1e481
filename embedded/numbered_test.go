package embedded_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// wireClient uses the owner's service as a program in another language would.
type wireClient struct {
	t       *testing.T
	nc      *nats.Conn
	subject string // session/<id>
}

func mustDialOwner(t *testing.T) (*embedded.Server, *wireClient) {
	t.Helper()
	dir := t.TempDir()
	s := mustStart(t, embedded.ServerOptions{Dir: dir})
	user, password := mustReadToken(t, dir)
	nc, err := nats.Connect(s.URL(), nats.UserInfo(user, password))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return s, &wireClient{t, nc, "session/s"}
}

// numbered returns a request; expect is a member of it, or empty.
func (c *wireClient) numbered(producer string, number int, id, expect string) []byte {
	if expect != "" {
		expect = `"expect":` + expect + `,`
	}
	return fmt.Appendf(nil, `{"subject":"%s",%s"producer":"%s","number":%d,"events":[{"specversion":"1.0","id":"%s","source":"urn:t","type":"tally.turn.appended.v1","data":{"entries":[{"thread":"main","turn":{"n":%d}}]}}]}`,
		c.subject, expect, producer, number, id, number)
}

// wireReply is an answer without its message text.
type wireReply struct {
	First      int        `json:"first,omitempty"`
	Last       int        `json:"last,omitempty"`
	Durability string     `json:"durability,omitempty"`
	Duplicate  bool       `json:"duplicate,omitempty"`
	Error      *wireError `json:"error,omitempty"`
}

type wireError struct {
	Code   string `json:"code"`
	Number int    `json:"number,omitempty"`
	Next   int    `json:"next,omitempty"`
}

// send sends a request without waiting; receive waits for the answer.
func (c *wireClient) send(request []byte) *nats.Subscription {
	c.t.Helper()
	inbox := c.nc.NewInbox()
	answers, err := c.nc.SubscribeSync(inbox)
	if err == nil {
		err = c.nc.PublishRequest("tally.api.v1.append", inbox, request)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return answers
}

func (c *wireClient) receive(answers *nats.Subscription) (r wireReply) {
	c.t.Helper()
	defer answers.Unsubscribe()
	m, err := answers.NextMsg(testkit.Patience(time.Minute))
	if err == nil {
		err = json.Unmarshal(m.Data, &r)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func (c *wireClient) ask(request []byte) wireReply {
	c.t.Helper()
	return c.receive(c.send(request))
}

// The answers equal those of the document.
func TestNumberedRequestsAreAnsweredAsDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "### Vectors: numbered requests")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile("\\| (\\d+) \\| `(\\w+)` \\| `(.*)` \\|").FindAllStringSubmatch(section, -1)
	if len(rows) < 5 {
		t.Fatalf("the document has %d rows", len(rows))
	}
	_, c := mustDialOwner(t)
	var answers []*nats.Subscription
	for _, row := range rows {
		var number int
		fmt.Sscan(row[1], &number)
		answers = append(answers, c.send(c.numbered("p", number, row[2], "")))
	}
	for i, row := range rows {
		var want wireReply
		if err := json.Unmarshal([]byte(row[3]), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.receive(answers[i])); diff != "" {
			t.Errorf("number %s, event %s: want - got +\n%s", row[1], row[2], diff)
		}
	}
}

// If a request fails, the requests after it fail too, and its number can be used again.
func TestNumberedRequestFails(t *testing.T) {
	s, c := mustDialOwner(t)
	var answers []*nats.Subscription
	for _, request := range [][]byte{
		c.numbered("p", 1, "a", ""), c.numbered("p", 2, "b", `{"at":9}`), c.numbered("p", 3, "c", ""),
		c.numbered("p", 4, "", `{"at":1,"since":1}`), // not a request: the error has no number
		c.numbered("p", 4, "d", ""),
	} {
		answers = append(answers, c.send(request))
	}
	var codes []string
	for _, a := range answers {
		if r := c.receive(a); r.Error != nil {
			codes = append(codes, r.Error.Code)
		} else {
			codes = append(codes, "ok")
		}
	}
	// 3 and 4 were sent after 2, and arrived before or after its failure.
	got := strings.Join(codes, " ")
	if !regexp.MustCompile(`^ok conflict (aborted|gap) invalid (aborted|gap)$`).MatchString(got) {
		t.Errorf("got answers %s", got)
	}
	for i, id := range []string{"b", "c", "d"} {
		if r := c.ask(c.numbered("p", i+2, id, "")); r.Error != nil || r.First != i+2 || r.Duplicate {
			t.Errorf("again, number %d: got %+v, %+v", i+2, r, r.Error)
		}
	}
	if ids := mustRead(t, s.Log(), events.Range{}); strings.Join(ids, " ") != "a b c d" {
		t.Errorf("got stored events %v", ids)
	}
	for request, field := range map[string]string{
		`{"subject":"session/s","number":1,"events":[]}`:                                              "number",
		`{"subject":"session/s","producer":"p","events":[]}`:                                          "number",
		`{"subject":"session/s","producer":"` + strings.Repeat("x", 65) + `","number":1,"events":[]}`: "producer",
	} {
		m, err := c.nc.Request("tally.api.v1.append", []byte(request), time.Minute)
		if err != nil || !strings.Contains(string(m.Data), `"field":"`+field+`"`) {
			t.Errorf("%s: got %s, %v", request, m.Data, err)
		}
	}
}

// Requests that are shuffled, lost and repeated are stored once each, in the order of their numbers.
func TestNumberedRequestsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s, c := mustDialOwner(t)
	const total, window = 400, 16
	random := testkit.Random(t)
	var want []string
	for i := 1; i <= total; i++ {
		want = append(want, fmt.Sprint("e", i))
	}
	for done := 0; done < total; {
		burst := min(window, total-done)
		order := random.Perm(burst)
		answers := make(map[int]*nats.Subscription)
		for _, i := range order {
			if random.IntN(10) == 0 {
				continue // lost on the way
			}
			answers[done+i+1] = c.send(c.numbered("p", done+i+1, want[done+i], ""))
		}
		// The lost request is sent again while the later ones wait.
		for i := range burst {
			if n := done + i + 1; answers[n] == nil || random.IntN(10) == 0 {
				answers[n] = c.send(c.numbered("p", n, want[n-1], ""))
			}
		}
		for n, a := range answers {
			if r := c.receive(a); r.Error != nil || r.First != n {
				t.Fatalf("number %d: got %+v, %+v", n, r, r.Error)
			}
		}
		done += burst
	}
	if diff := cmp.Diff(want, mustRead(t, s.Log(), events.Range{Subject: events.Session("", "s")})); diff != "" {
		t.Error(diff)
	}
}

// The subjects of the micro protocol find and describe the service.
func TestServiceIsAMicroService(t *testing.T) {
	_, c := mustDialOwner(t)
	c.ask(c.numbered("p", 1, "a", `{"at":9}`))
	for verb, wants := range map[string][]string{
		"PING":  {`"name":"tally"`, `"type":"io.nats.micro.v1.ping_response"`},
		"INFO":  {`"tally.api":"v1"`, `"tally.durability":"durable"`, `"subject":"tally.api.v1.append"`, `"subject":"tally.api.v1.watermark"`},
		"STATS": {`"name":"append"`, `"num_requests":1`},
	} {
		for _, subject := range []string{"$SRV." + verb, "$SRV." + verb + ".tally"} {
			m, err := c.nc.Request(subject, nil, time.Minute)
			if err != nil {
				t.Errorf("%s: %v", subject, err)
				continue
			}
			for _, want := range wants {
				if !strings.Contains(string(m.Data), want) {
					t.Errorf("%s: got %s, want it to contain %s", subject, m.Data, want)
				}
			}
		}
	}
}

package tavern_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/tavern"
)

// killedRounds passes the first round and the store to a copy of the test program.
const killedRounds = "TALLY_TEST_TAVERN_ROUNDS"

// killedOpen opens a store by its directory or its server's URL.
func killedOpen(ctx context.Context, where string) (*tally.Store, error) {
	if strings.HasPrefix(where, "nats:") {
		return embedded.Open(ctx, embedded.Options{Backend: "nats", URL: where})
	}
	return embedded.Open(ctx, embedded.Options{Store: where})
}

// killedRound does one action of each kind. When it returns, all are acknowledged.
func killedRound(ctx context.Context, st *tally.Store, n int) {
	id := fmt.Sprint("n", n)
	q, a := tavern.QueueOf(st, "killed"), tavern.AgentOf(st, agentID)
	need(q.Enqueue(ctx, tavern.Item{ID: id, Body: []byte(id)}))
	if c := need(q.Resume(ctx, id, need(q.TryClaim(ctx, "w")).Fence)); c.Finish(ctx, []byte(`"done"`)) != nil {
		panic("finish")
	}
	m := inboxNote("a", id)
	m.Key = id
	sent := need(tavern.InboxOf(st, tavern.User).Send(ctx, m))
	if tavern.InboxOf(st, tavern.User).Seen(ctx, sent.Offset) != nil {
		panic("seen")
	}
	need(st.Documents().Save(ctx, "doc", id, tally.Write{Data: []byte(id)}))
	if err := a.SetState(ctx, []string{tavern.AgentWorking, tavern.AgentIdle}[n%2], "round "+id); err != nil {
		panic(err)
	}
	f := need(tavern.WorkflowsOf(st).Start(ctx, "suite", tavern.FlowOptions{ID: id}))
	if err := f.Move(ctx, "ran"); err != nil {
		panic(err)
	}
}

// killedCheck checks that rounds are complete, with empty caches.
func killedCheck(t *testing.T, st *tally.Store, rounds []int) {
	t.Helper()
	ctx := t.Context()
	tavern.ForgetQueues(st)
	for _, n := range rounds {
		id := fmt.Sprint("n", n)
		if s := need(tavern.QueueOf(st, "killed").Get(ctx, id)); s.State != tavern.ItemDone || string(s.History[len(s.History)-1].Result) != `"done"` {
			t.Errorf("item %s: %+v", id, s)
		}
		if doc, err := st.Documents().Read(ctx, "doc", id); err != nil || string(doc.Data) != id {
			t.Errorf("document %s: %v", id, err)
		}
		flowIs(t, tavern.FlowOf(st, id), "ran", 2, "")
	}
	in := tavern.InboxOf(st, tavern.User)
	if mail, unread := inboxAll(t, st, tavern.User), need(in.Unread(ctx)); len(mail) < len(rounds) || unread > 1 {
		t.Errorf("got %d messages of %d, %d unread", len(mail), len(rounds), unread)
	}
	if i := need(tavern.AgentOf(st, agentID).Info(ctx)); !strings.Contains(string(i.Node), "state: "+i.State+"\n") {
		t.Errorf("the agent is %s, its file has %s", i.State, i.Node)
	}
}

// The process that uses the store is killed, also with all files beside the log deleted: everything that was
// acknowledged is there for the next process that opens the store.
func TestKilledTeam(t *testing.T) {
	if text := os.Getenv(killedRounds); text != "" {
		first, where, _ := strings.Cut(text, " ")
		st := need(killedOpen(t.Context(), where))
		for n := need(strconv.Atoi(first)); ; n++ {
			killedRound(t.Context(), st, n)
			fmt.Println("round", n)
		}
	}
	testkit.NotUnderRace(t) // a killed process reports nothing
	for _, backend := range []string{"local", "nats"} {
		t.Run("D-03 "+backend+": killed and started again", func(t *testing.T) {
			where := filepath.Join(t.TempDir(), "store")
			if backend == "nats" {
				where = storetest.StartServer(t).URL
			}
			st := need(killedOpen(t.Context(), where))
			flowTemplates(t, st)
			newAgent(t, st)
			must(t, tavern.InboxOf(st, tavern.User).Open(t.Context(), ""))
			must(t, st.Close())
			next, acked := 0, []int(nil)
			for kill := range testkit.Times(3) {
				p := exec.Command(os.Args[0], "-test.run", "^TestKilledTeam$")
				p.Env, p.Stderr = append(os.Environ(), fmt.Sprint(killedRounds, "=", next, " ", where)), os.Stderr
				out := need(p.StdoutPipe())
				must(t, p.Start())
				lines := bufio.NewScanner(out)
				for n := 0; n <= kill%3 && lines.Scan(); n++ {
					_, err := fmt.Sscanf(lines.Text(), "round %d", &next)
					must(t, err)
					acked = append(acked, next)
					next++
				}
				must(t, p.Process.Kill())
				_ = p.Wait()
				for _, cache := range []string{"views*", "work*", "snapshots"} {
					for _, path := range need(filepath.Glob(filepath.Join(where, cache))) {
						must(t, os.RemoveAll(path))
					}
				}
				st := need(killedOpen(t.Context(), where))
				killedCheck(t, st, acked)
				for range st.Log.Read(t.Context(), events.Range{}) { // all records can be read
				}
				// Work that was in progress at the kill is due again: here a worker does it at once.
				for {
					c, err := tavern.QueueOf(st, "killed").TryClaim(t.Context(), "w")
					if err != nil {
						break
					}
					must(t, c.Finish(t.Context(), []byte(`"done"`)))
				}
				must(t, st.Close())
				next += 2 // rounds that may be cut off are not repeated
			}
		})
	}
}

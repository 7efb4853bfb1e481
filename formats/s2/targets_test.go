package s2_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/formats/bucket"
	"github.com/tallylog/tally/formats/redis"
	"github.com/tallylog/tally/formats/s2"
	"github.com/tallylog/tally/formats/storagetest"
	"github.com/tallylog/tally/internal/testkit"
)

// The storages of T-39: a conversation's files are the same wherever they are kept, from there to the
// next one too, and so is what is appended to them.
func TestTargets(t *testing.T) {
	ctx := t.Context()
	want := map[string]string{
		".tally/conversations/conv-1-a/meta.json":               "{\n  \"id\": \"conv-1-a\"\n}",
		".tally/conversations/conv-1-a/conversation.jsonl":      "{\"stepIndex\":0,\"input\":\"\u2028 <&> \\ud83d\"}\n{\"stepIndex\":1}",
		".tally/conversations/conv-1-a/runs/tally/run-1-b.json": "{}",
		".tally/conversations/a=3Ab/conversation.jsonl":         "",
		".tally/conversations/a:b/meta.json":                    "\xff\x00\r\n",
		".tally/conversations/Größe \xfe/meta.json":             "BOM \ufeff",
	}
	for n := range 30 {
		want[fmt.Sprintf(".tally/conversations/conv-%d/meta.json", n)] = fmt.Sprint(n)
	}
	storages := []formats.Storage{storagetest.NewMem(storagetest.MemOptions{}), dir(t), inRedis(t), inBucket(t), inS2(t), dir(t)}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		must(t, storages[0].Write(ctx, name, 0o600, storagetest.Bytes(want[name])))
	}
	for n, st := range storages {
		t.Run(fmt.Sprintf("%d %T", n, st), func(t *testing.T) {
			found := make(map[string]string)
			for f, err := range formats.Walk(ctx, st, "") {
				must(t, err)
				if found[f.Path] = storagetest.Text(t, st, f.Path); f.Size != int64(len(found[f.Path])) || f.Mode != 0o600 {
					t.Errorf("found %+v", f)
				}
			}
			if !maps.Equal(found, want) {
				t.Errorf("%d files, want %d: %q", len(found), len(want), found)
			}
			name := ".tally/conversations/conv-1-a/conversation.jsonl"
			more := fmt.Sprintf("\n{\"stepIndex\":%d}", n+2)
			must(t, st.Append(ctx, name, []byte(more)))
			want[name] += more
			if n+1 == len(storages) {
				return
			}
			for f, err := range formats.Walk(ctx, st, "") {
				must(t, err)
				must(t, storages[n+1].Write(ctx, f.Path, f.Mode, storagetest.Bytes(storagetest.Text(t, st, f.Path))))
			}
		})
	}
}

func dir(t *testing.T) formats.Storage {
	d, err := formats.OpenDir(t.TempDir())
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

func inRedis(t *testing.T) formats.Storage {
	st, err := redis.Open(t.Context(), redis.Config{URL: testkit.Redis(t).URL})
	must(t, err)
	t.Cleanup(func() { st.Close() })
	return st
}

func inBucket(t *testing.T) formats.Storage {
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()})
	must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	st, err := bucket.Open(t.Context(), js, "tree")
	must(t, err)
	return st
}

func inS2(t *testing.T) formats.Storage {
	_, server := serve(t, "t")
	return s2.New(s2.Config{Token: "t", Endpoint: server.URL})
}

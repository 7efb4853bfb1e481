package s2_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/layouts/bucket"
	"github.com/tallylog/tally/internal/layouts/redis"
	"github.com/tallylog/tally/internal/layouts/s2"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storagetest"
	"github.com/tallylog/tally/stores/evals"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

// A conversation has the same files in every storage, also after a copy from one storage to the next and after
// appends.
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
	storages := []layouts.Storage{storagetest.NewMem(storagetest.MemOptions{}), dir(t), inRedis(t), inBucket(t), inS2(t), dir(t)}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		must(t, storages[0].Write(ctx, name, 0o600, storagetest.Bytes(want[name])))
	}
	for n, st := range storages {
		t.Run(fmt.Sprintf("%d %T", n, st), func(t *testing.T) {
			found := make(map[string]string)
			for f, err := range layouts.Walk(ctx, st, "") {
				must(t, err)
				if found[f.Path] = storagetest.Text(t, st, f.Path); f.Size != int64(len(found[f.Path])) || f.Mode != 0o600 {
					t.Errorf("got the unexpected file %+v", f)
				}
			}
			if !maps.Equal(found, want) {
				t.Errorf("got %d files, want %d: %q", len(found), len(want), found)
			}
			name := ".tally/conversations/conv-1-a/conversation.jsonl"
			more := fmt.Sprintf("\n{\"stepIndex\":%d}", n+2)
			must(t, st.Append(ctx, name, []byte(more)))
			want[name] += more
			if n+1 == len(storages) {
				return
			}
			for f, err := range layouts.Walk(ctx, st, "") {
				must(t, err)
				must(t, storages[n+1].Write(ctx, f.Path, f.Mode, storagetest.Bytes(storagetest.Text(t, st, f.Path))))
			}
		})
	}
}

// One conversation is exported to each storage. It reads back the same there, and after an import from there.
func TestConversation(t *testing.T) {
	ctx := t.Context()
	src := store(t)
	c, _, err := evals.Create(ctx, src, "conv-1-a:b")
	must(t, err)
	for n := range 5 {
		step, err := evals.NewStep(n, events.Raw(fmt.Sprintf(`{"role":"user","content":"%d \u2028 <&> \ud83d 1.0"}`, n)), events.Raw(`{"role":"assistant","content":"ok"}`))
		must(t, err)
		_, err = c.Append(ctx, step)
		must(t, err)
	}
	_, err = c.SetMetadata(ctx, events.Raw(`{"k":[1e+21,0.9200000000000003]}`))
	must(t, err)
	_, err = c.Run(evals.TrajectoryRun, "run-1-a").Save(ctx, events.Raw(`{"completed":true,"z":1,"a":2}`))
	must(t, err)
	files := storagetest.NewMem(storagetest.MemOptions{})
	exported(t, src, files)
	want := filesIn(t, files)
	if len(want) != 3 {
		t.Fatalf("files %q", slices.Sorted(maps.Keys(want)))
	}
	redisServer := testkit.Redis(t)
	original, err := redis.Open(ctx, redis.Config{URL: redisServer.URL, Prefix: "original:.tally:"})
	must(t, err)
	t.Cleanup(func() { original.Close() })
	conn, err := redis.Dial(ctx, redisServer.URL)
	must(t, err)
	for name, text := range want { // as the original's adapter writes
		key := "original:.tally:" + strings.ReplaceAll(name, "/", ":")
		_, err := conn.Do(ctx, "DEL", key)
		must(t, err)
		_, err = conn.Do(ctx, "XADD", key, "*", "content", text)
		must(t, err)
	}
	must(t, conn.Close())
	var first string
	for _, target := range []struct {
		name string
		st   layouts.Storage
	}{{"a folder", dir(t)}, {"Redis", inRedis(t)}, {"a bucket", inBucket(t)}, {"S2, a stub of it", inS2(t)}, {"a key space that the original wrote", original}} {
		t.Run("T-39 "+target.name, func(t *testing.T) {
			if target.st != layouts.Storage(original) {
				exported(t, src, target.st)
			}
			if have := filesIn(t, target.st); !maps.Equal(have, want) {
				t.Errorf("the files read back are %q, want %q", have, want)
			}
			other := store(t)
			r, err := tallydir.Layout{}.ImportFrom(ctx, other, target.st, layouts.Root{Name: "r", Marker: "m"}, layouts.ImportOptions{})
			must(t, err)
			if len(r.Problems) > 0 {
				t.Errorf("got the problems %v", r.Problems)
			}
			s, err := other.Loader().Session(ctx, events.Session(other.Namespace(), c.ID()), 0)
			must(t, err)
			raw, err := evals.Of(other, c.ID()).Run(evals.TrajectoryRun, "run-1-a").Raw(ctx)
			must(t, err)
			hash := s.Threads.Hash() + string(raw)
			if first == "" {
				first = hash
			}
			if hash != first {
				t.Errorf("the state has the hash %s, want %s as from a folder", hash, first)
			}
			mine, err := c.Load(ctx)
			must(t, err)
			back, err := evals.Of(other, c.ID()).Load(ctx)
			must(t, err)
			if back.ID != mine.ID || string(back.Metadata) != string(mine.Metadata) || len(back.Steps) != len(mine.Steps) {
				t.Fatalf("got %+v, want %+v", back, mine)
			}
			for n, step := range mine.Steps {
				if string(back.Steps[n].Input()) != string(step.Input()) || fmt.Sprint(back.Steps[n].Output()) != fmt.Sprint(step.Output()) {
					t.Errorf("step %d is %s, want %s", n, back.Steps[n].Raw(), step.Raw())
				}
			}
			again := storagetest.NewMem(storagetest.MemOptions{})
			exported(t, other, again)
			if have := filesIn(t, again); !maps.Equal(have, want) {
				t.Errorf("the exported files are %q, want %q", have, want)
			}
		})
	}
}

func store(t *testing.T) *tally.Store {
	st, err := tally.Open(t.Context(), logtest.Open(t), tally.Config{})
	must(t, err)
	return st
}

func exported(t *testing.T, src layouts.Source, to layouts.Storage) {
	t.Helper()
	r, err := layouts.Export(t.Context(), src, tallydir.Layout{}, to, layouts.ExportOptions{All: true})
	must(t, err)
	if len(r.Problems) > 0 {
		t.Fatalf("got the problems %v", r.Problems)
	}
}

func filesIn(t *testing.T, st layouts.Storage) map[string]string {
	t.Helper()
	files := make(map[string]string)
	for f, err := range layouts.Walk(t.Context(), st, "") {
		must(t, err)
		files[f.Path] = storagetest.Text(t, st, f.Path)
	}
	return files
}

func dir(t *testing.T) layouts.Storage {
	d, err := layouts.OpenDir(t.TempDir())
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

func inRedis(t *testing.T) layouts.Storage {
	st, err := redis.Open(t.Context(), redis.Config{URL: testkit.Redis(t).URL})
	must(t, err)
	t.Cleanup(func() { st.Close() })
	return st
}

func inBucket(t *testing.T) layouts.Storage {
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()})
	must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
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

func inS2(t *testing.T) layouts.Storage {
	_, fake := serve(t, "t")
	return s2.New(s2.Config{Token: "t", Endpoint: fake.URL})
}

package redis_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/layouts/redis"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storagetest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, address, prefix string) *redis.Storage {
	t.Helper()
	st, err := redis.Open(t.Context(), redis.Config{URL: address, Prefix: prefix})
	must(t, err)
	t.Cleanup(func() { st.Close() })
	return st
}

func TestStorage(t *testing.T) {
	server, n := testkit.Redis(t, "--notify-keyspace-events", "KA"), 0
	storagetest.Run(t, storagetest.Limits{Names: 1200, Large: 16 << 20}, func(t *testing.T) layouts.Storage {
		n++
		return open(t, server.URL, fmt.Sprintf("test[%d]*:", n))
	})
}

// A broken connection, or a killed server, leaves the old content or the new.
func TestBreaks(t *testing.T) {
	server := testkit.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	u, err := url.Parse(server.URL)
	must(t, err)
	cut := storagetest.NewCut(t, u.Host)
	u.Host = cut.Address
	storagetest.RunCut(t, cut, func(t *testing.T) layouts.Storage { return open(t, u.String(), "") })

	st := open(t, server.URL, "killed:")
	for n := range 3 {
		must(t, st.Write(t.Context(), "a/b", 0o600, storagetest.Bytes(fmt.Sprint(n))))
		server.Kill(t)
		if err := st.Write(t.Context(), "a/b", 0o600, storagetest.Bytes("lost")); err == nil {
			t.Error("a write to a killed server succeeded")
		}
		server.Start(t)
		if got := storagetest.Text(t, st, "a/b"); got != fmt.Sprint(n) {
			t.Errorf("the content after a kill is %q, want %d", got, n)
		}
	}
}

// commands sends commands on a connection of its own.
func commands(t *testing.T, address string, lines ...[]any) {
	t.Helper()
	c, err := redis.Dial(t.Context(), address)
	must(t, err)
	defer c.Close()
	for _, words := range lines {
		if _, err := c.Do(t.Context(), words...); err != nil {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// T-39: files that tally-evals wrote are read as it wrote them, beside any other content of the database. Other keys
// are listed as neither files nor folders.
func TestOriginal(t *testing.T) {
	server := testkit.Redis(t)
	ctx := t.Context()
	add := func(key string, fields ...any) []any { return append([]any{"XADD", key, "*"}, fields...) }
	commands(t, server.URL,
		add("tally:.tally:conversations:conv-1-a:meta.json", "content", `{"id":"conv-1-a"}`),
		add("tally:.tally:conversations:conv-1-a:conversation.jsonl", "content", "{}\n{}\xff"),
		add("tally:.tally:conversations:a=3Ab:meta.json", "content", "as it stands"),
		add("tally:.tally:conversations:b=3D:meta.json", "other", "x", "content", "after another field"),
		add("tally:.tally:lines", "content", "one"), add("tally:.tally:lines", "content", "two"), add("tally:.tally:lines", "content", ""),
		add("tally:.tally:none", "field", "no content"),
		[]any{"SET", "tally:.tally:text", "a string"},
		add("tally:.tally:a::b:meta.json", "content", "an id with two colons"),
		add("tally:.tally:../x", "content", "out"), add("tally:.tally:..:x", "content", "out"), add("tally:.tally:end:", "content", "x"), add("tally:", "content", "x"),
		add("tallyx", "content", "not below the prefix"), add("Tally:.tally:x", "content", "nor this"),
	)
	st := open(t, server.URL, "")
	want := map[string]string{
		".tally/conversations/conv-1-a/meta.json": `{"id":"conv-1-a"}`, ".tally/conversations/conv-1-a/conversation.jsonl": "{}\n{}\xff",
		".tally/conversations/a=3Ab/meta.json": "as it stands", ".tally/conversations/b=3D/meta.json": "after another field", ".tally/lines": "one\ntwo\n", ".tally/none": "",
	}
	var odd []string
	for f, err := range layouts.Walk(ctx, st, "") {
		must(t, err)
		text, ok := want[f.Path]
		if f.Size < 0 {
			odd = append(odd, f.Path)
			continue
		}
		if !ok || f.Size != int64(len(text)) || f.Mode != 0o644 || f.ModTime.IsZero() || f.Version == "" {
			t.Errorf("got the unexpected file %+v", f)
			continue
		}
		if got := storagetest.Text(t, st, f.Path); got != text {
			t.Errorf("the content of %q is %q, want %q", f.Path, got, text)
		}
		delete(want, f.Path)
	}
	slices.Sort(odd)
	if wantOdd := []string{".tally/..:x", ".tally/..:x", ".tally/a/:b:meta.json", ".tally/end/:", ".tally/text", ":"}; len(want) > 0 || !slices.Equal(odd, wantOdd) {
		t.Errorf("the files %q are missing, the odd names are %q", want, odd)
	}
	list, err := st.List(ctx, ".tally")
	must(t, err)
	var names []string
	for _, e := range list {
		names = append(names, fmt.Sprintf("%s %v %d", e.Name, e.Dir, e.Size))
	}
	if want := []string{"..:x false -1", "..:x false -1", "a true 0", "conversations true 0", "end true 0", "lines false 8", "none false 0", "text false -1"}; !slices.Equal(names, want) {
		t.Errorf("the list is %q, want %q", names, want)
	}
	for what, err := range map[string]error{
		"write": st.Write(ctx, ".tally/text", 0o644, storagetest.Bytes("x")), "append": st.Append(ctx, ".tally/text", []byte("x")),
		"swap": second(st.Swap(ctx, ".tally/text", 0o644, storagetest.Bytes("x"))), "displace": second(st.Displace(ctx, ".tally/text")), "read": second(st.Read(ctx, ".tally/text")),
	} {
		if !errors.Is(err, layouts.ErrNotFile) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of a string: %v", what, err)
		}
	}
	must(t, st.Append(ctx, ".tally/lines", []byte("+")))
	if got := storagetest.Text(t, st, ".tally/lines"); got != "one\ntwo\n+" {
		t.Errorf("lines are %q", got)
	}
}

func second[T any](_ T, err error) error { return err }

// Files are written in the form that tally-evals reads: a key, one entry, its field content.
func TestForm(t *testing.T) {
	server := testkit.Redis(t)
	ctx, st := t.Context(), open(t, server.URL, "p:")
	c, err := redis.Dial(ctx, server.URL)
	must(t, err)
	defer c.Close()
	for name, key := range map[string]string{"a/b.json": "p:a:b.json", "a=3Ab/=/x": "p:a=3Ab:=:x", "a:b/c/:=3A": "p::a=3Ab:c::=3A=3D3A", "..a": "p:..a"} {
		for mode, fields := range map[fs.FileMode][]any{0o644: {"content", "text"}, 0o600: {"content", "text", "mode", "600"}} {
			for range 2 {
				must(t, st.Write(ctx, name, mode, storagetest.Bytes("text")))
			}
			reply, err := c.Do(ctx, "XRANGE", key, "-", "+")
			must(t, err)
			entries, _ := reply.([]any)
			if len(entries) != 1 || fmt.Sprint(entries[0].([]any)[1]) != fmt.Sprint(fields) {
				t.Errorf("%q at %q is %v, want one entry with %v", name, key, reply, fields)
			}
		}
	}
}

// Watch refuses a server that sends no notifications.
func TestNotify(t *testing.T) {
	server := testkit.Redis(t, "--notify-keyspace-events", "Kg")
	err := open(t, server.URL, "").Watch(t.Context(), nil, func(string) {})
	if none, ok := errors.AsType[*redis.NotifyError](err); !ok || none.Have != "gK" || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got the error %v", err)
	}
}

// Addresses are checked, and the errors contain no password.
func TestURL(t *testing.T) {
	for _, address := range []string{"", "http://x", "redis://", "redis://u:" + testkit.Canary("url") + "@", "%zz" + testkit.Canary("url"), "redis:secret", "redis://u:" + testkit.Canary("url") + "@127.0.0.1:1/x",
		"redis://u:" + testkit.Canary("url") + "@127.0.0.1:1"} {
		_, err := redis.Open(t.Context(), redis.Config{URL: address})
		if err == nil || testkit.HasCanary([]byte(err.Error())) || !strings.Contains(err.Error(), "layouts/redis") {
			t.Errorf("%s: got the error %v", address, err)
		}
	}
}

package bucket_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/layouts/bucket"
	"github.com/tallylog/tally/internal/testkit/storagetest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func serve(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()})
	must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	return s
}

// connect returns a connection that does not reconnect.
func connect(t *testing.T, address string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(address, nats.NoReconnect())
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	must(t, err)
	return js
}

func open(t *testing.T, js jetstream.JetStream, name string) *bucket.Storage {
	t.Helper()
	st, err := bucket.Open(t.Context(), js, name)
	must(t, err)
	return st
}

func TestStorage(t *testing.T) {
	js, n := connect(t, serve(t).ClientURL()), 0
	storagetest.Run(t, storagetest.Limits{Names: 1200, Large: 16 << 20}, func(t *testing.T) layouts.Storage {
		n++
		return open(t, js, fmt.Sprintf("bucket-%d", n))
	})
}

// A broken connection leaves the old content or the new.
func TestBreaks(t *testing.T) {
	s := serve(t)
	cut := storagetest.NewCut(t, s.Addr().String())
	storagetest.RunCut(t, cut, func(t *testing.T) layouts.Storage { return open(t, connect(t, "nats://"+cut.Address), "cut") })
}

// T-39: other clients of a bucket can read the files of this package, and it reads theirs. Other objects are listed as
// neither files nor folders.
func TestOthers(t *testing.T) {
	js := connect(t, serve(t).ClientURL())
	ctx, st := t.Context(), open(t, js, "b")
	theirs, err := js.ObjectStore(ctx, "b")
	must(t, err)
	for _, name := range []string{"a/file", "a/Größe", "=FF", "=3D", "a//b", "/a", "a/../b"} {
		_, err := theirs.PutString(ctx, name, "text of "+name)
		must(t, err)
	}
	info, err := theirs.GetInfo(ctx, "a/file")
	must(t, err)
	_, err = theirs.AddLink(ctx, "a/link", info)
	must(t, err)
	var odd []string
	want := map[string]string{"a/file": "text of a/file", "a/Größe": "text of a/Größe", "\xff": "text of =FF", "=3D": "text of =3D"}
	for f, err := range layouts.Walk(ctx, st, "") {
		must(t, err)
		if f.Size < 0 {
			odd = append(odd, f.Path)
			continue
		}
		if got := storagetest.Text(t, st, f.Path); got != want[f.Path] || f.Size != int64(len(got)) {
			t.Errorf("the content of %q is %q, want %q: %+v", f.Path, got, want[f.Path], f)
		}
		delete(want, f.Path)
	}
	slices.Sort(odd)
	if wantOdd := []string{":a", "a/link", "a:..:b", "a::b"}; len(want) > 0 || !slices.Equal(odd, wantOdd) {
		t.Errorf("the files %q are missing, the odd names are %q", want, odd)
	}
	big := strings.Repeat("0123456789", 1<<17)
	for path, name := range map[string]string{"a/file": "a/file", "x/\xfe": "x/=FE", "=FE=": "=3DFE=", "=3D": "=3D", "=3DFF": "=3D3DFF", "=3E": "=3E"} {
		must(t, st.Write(ctx, path, 0o600, storagetest.Bytes(big)))
		if got, err := theirs.GetString(ctx, name); err != nil || got != big {
			t.Errorf("the client read %[3]d bytes of %[1]q at %[2]q, error %[4]v", path, name, len(got), err)
		}
		if got := storagetest.Text(t, st, path); got != big {
			t.Errorf("%q: read %d bytes after the client wrote", path, len(got))
		}
	}
}

// Concurrent appends lose nothing, and the pieces of replaced versions are deleted.
func TestAtOnce(t *testing.T) {
	js := connect(t, serve(t).ClientURL())
	ctx, st := t.Context(), open(t, js, "b")
	const writers, lines = 4, 15
	ended := make(chan error, writers)
	for w := range writers {
		go func() {
			ended <- func() error {
				for n := range lines {
					if err := st.Append(ctx, "log", []byte(fmt.Sprintf("%d.%d\n", w, n))); err != nil {
						return err
					}
					if err := st.Write(ctx, "other", 0o644, storagetest.Bytes(strings.Repeat("x", w))); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range writers {
		must(t, <-ended)
	}
	if got := strings.Fields(storagetest.Text(t, st, "log")); len(got) != writers*lines {
		t.Errorf("got %d lines, want %d", len(got), writers*lines)
	}
	must(t, st.Delete(ctx, "other"))
	stream, err := js.Stream(ctx, "OBJ_b")
	must(t, err)
	info, err := stream.Info(ctx)
	must(t, err)
	if info.State.Msgs != 3 { // the metadata of two names, and one piece
		t.Errorf("the stream has %d messages", info.State.Msgs)
	}
}

// Temporary files leave no messages behind. Otherwise there would be one for each revision of a file.
func TestTemporaryIsForgotten(t *testing.T) {
	js := connect(t, serve(t).ClientURL())
	st := open(t, js, "left")
	must(t, st.Write(t.Context(), "a/b", 0o644, storagetest.Bytes("text")))
	messages := func() uint64 {
		stream, err := js.Stream(t.Context(), "OBJ_left")
		must(t, err)
		info, err := stream.Info(t.Context())
		must(t, err)
		return info.State.Msgs
	}
	before := messages()
	for range 5 {
		name := layouts.TemporaryName("a/b")
		must(t, st.Write(t.Context(), name, 0o600, storagetest.Bytes("old")))
		must(t, st.Delete(t.Context(), name))
		if err := st.Delete(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a second deletion: %v", err)
		}
	}
	if now := messages(); now != before {
		t.Errorf("the stream has %d messages, want %d as before", now, before)
	}
}

package s2_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/layouts/s2"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storagetest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestStorage(t *testing.T) {
	_, server := serve(t, "secret")
	n := 0
	limits := storagetest.Limits{Names: 1200, Large: 8 << 20, Name: func(s string) bool { return len(s) < 100 }} // of 512 bytes in all, some need three each
	storagetest.Run(t, limits, func(*testing.T) layouts.Storage {
		n++
		return s2.New(s2.Config{Token: "secret", Endpoint: server.URL, Prefix: fmt.Sprintf("p%d:", n)})
	})
}

// A broken connection leaves the old content or the new.
func TestBreaks(t *testing.T) {
	_, server := serve(t, "t")
	u, err := url.Parse(server.URL)
	must(t, err)
	cut := storagetest.NewCut(t, u.Host)
	storagetest.RunCut(t, cut, func(t *testing.T) layouts.Storage {
		client := &http.Client{Transport: &http.Transport{}}
		t.Cleanup(client.CloseIdleConnections)
		return s2.New(s2.Config{Token: "t", Endpoint: "http://" + cut.Address, Client: client})
	})
}

// T-39: files that tally-evals wrote are read as it reads them, and are replaced as a whole.
func TestOriginal(t *testing.T) {
	s, server := serve(t, "t")
	ctx, st := t.Context(), s2.New(s2.Config{Token: "t", Endpoint: server.URL})
	s.streams[".tally/conversations/a/meta.json"] = &stubStream{next: 2, records: []stubRecord{{Seq: 0, Body: []byte("{}")}, {Seq: 1, Body: []byte("{}\n")}}}
	s.streams["odd//name"] = &stubStream{next: 1, records: []stubRecord{{Body: []byte("x")}}}
	s.streams["empty"] = &stubStream{}
	name := ".tally/conversations/a/meta.json"
	if got := storagetest.Text(t, st, name); got != "{}\n{}\n" {
		t.Errorf("got the content %q", got)
	}
	must(t, st.Append(ctx, name, []byte("+")))
	if got := storagetest.Text(t, st, name); got != "{}\n{}\n+" {
		t.Errorf("got the content %q", got)
	}
	must(t, st.Write(ctx, name, 0o600, storagetest.Bytes("new")))
	if got := storagetest.Text(t, st, name); got != "new" || len(s.streams[name].records) != 2 {
		t.Errorf("got the content %q in %d records", got, len(s.streams[name].records))
	}
	var found []string
	for f, err := range layouts.Walk(ctx, st, "") {
		must(t, err)
		found = append(found, fmt.Sprintf("%s %d", f.Path, f.Size))
	}
	if want := ".tally/conversations/a/meta.json 3, odd::name -1"; strings.Join(found, ", ") != want {
		t.Errorf("the list is %q, want %q", found, want)
	}
	if got := fmt.Sprint(newConfig(t, s, st)); got != "map[retention_policy:map[infinite:map[]]]" {
		t.Errorf("a new stream has the settings %s: its records would expire", got)
	}
}

func newConfig(t *testing.T, s *stub, st *s2.Storage) map[string]any {
	must(t, st.Write(t.Context(), "new", 0o644, storagetest.Bytes("x")))
	return s.streams["new"].config
}

// A refusal has its reason, and not the token.
func TestRefused(t *testing.T) {
	_, server := serve(t, "right")
	ctx, token := t.Context(), testkit.Canary("token")
	st := s2.New(s2.Config{Endpoint: server.URL, Token: token})
	refused, ok := errors.AsType[*s2.Error](st.Write(ctx, "a", 0o644, storagetest.Bytes("x")))
	if !ok || refused.Status != 403 || refused.Code != "permission_denied" || testkit.HasCanary([]byte(refused.Error())) {
		t.Errorf("got %v", refused)
	}
	if _, err := st.Stat(ctx, "a"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat: %v", err)
	}
	server.Close()
	if err := st.Write(ctx, "a", 0o644, storagetest.Bytes("x")); err == nil || testkit.HasCanary([]byte(err.Error())) {
		t.Errorf("without a server: %v", err)
	}
	long := strings.Repeat("x/", 256) + "y"
	if err := st.Write(ctx, long, 0o644, storagetest.Bytes("x")); err == nil || !strings.Contains(err.Error(), "512 bytes") {
		t.Errorf("write to a long name: %v", err)
	}
}

package embedded_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
	"github.com/tallylog/tally/log"
)

// rewriteState writes an altered state file with the checksum that belongs to it.
func rewriteState(path, text string) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		return err
	}
	delete(members, "crc32")
	return statefile.Write(path, members, durable.NoSync)
}

// Nobody is answered who has not read the tree's file, and what others send changes nothing.
func TestTreeDesk(t *testing.T) {
	n := newNoted(t, "")
	st := n.keeps()
	if err := st.Wait(t.Context(), "tree:notes", 0); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(n.dir, "trees", "notes-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := rewriteState(files[0], strings.Replace(string(text), `"token":"`, `"token":"x`, 1)); err != nil {
		t.Fatal(err)
	}
	if said, err := n.ask(embedded.TreeState); !errors.Is(err, log.ErrUnavailable) {
		t.Errorf("%+v, %v", said, err)
	}
	if err := os.WriteFile(files[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := n.ask("format"); err == nil || errors.Is(err, log.ErrUnavailable) {
		t.Errorf("what nobody can ask: %v", err)
	}
	conflict := events.Document(st.Namespace(), "conflict", "1f0c")
	e := events.Event{Source: "urn:notes", Type: events.TypeDocumentWritten, Subject: conflict, ContentType: events.ContentTypeRaw, Data: []byte("mine")}
	meta := events.DocMeta{Attributes: map[string]string{"tree": "notes", "path": "a", "copy": "a.conflict-0-1f0c"}}
	if _, err := st.Append(t.Context(), conflict, log.At(0), e.WithExtension(events.ExtDoc, meta.String())); err != nil {
		t.Fatal(err)
	}
	if _, err := n.ask(embedded.TreeResolve); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("a conflict that nobody named: %v", err)
	}
}

// Where a process was killed that kept a tree, somebody else may be listening by now: he is not
// told the token, and what he says is believed by nobody.
func TestTreeDeskOfStranger(t *testing.T) {
	n := newNoted(t, "mode = \"sync\"\n")
	st := n.keeps()
	if err := n.put(st, "a", "one"); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(n.dir, "trees", "notes-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var f struct{ URL, Token string }
	if err := json.Unmarshal(text, &f); err != nil || f.Token == "" {
		t.Fatal(f, err)
	}
	asked := make(chan string, 8)
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said, _ := io.ReadAll(r.Body)
		asked <- fmt.Sprint(r.URL, r.Header, string(said))
		w.Header().Set("Authorization", r.Header.Get("Authorization")) // what he was told is all he has
		fmt.Fprint(w, `{"status":{"tree":"notes","pid":1,"files":7}}`)
	}))
	defer stranger.Close()
	if err := rewriteState(files[0], strings.Replace(string(text), f.URL, stranger.URL+"/", 1)); err != nil {
		t.Fatal(err)
	}
	if said, err := n.ask(embedded.TreeState); !errors.Is(err, log.ErrUnavailable) || said.Status.Files == 7 {
		t.Errorf("a stranger is believed: %+v, %v", said.Status, err)
	}
	if is := <-asked; strings.Contains(is, f.Token) {
		t.Errorf("a stranger is told %s", is)
	}
}

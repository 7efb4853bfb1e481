package cmd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/internal/testkit"
)

// sealFile writes the content of a sealed document into a file: seal KEYS NAMESPACE ID CLEAR FILE
func sealFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 5 {
		ts.Fatalf("usage: seal KEYS NAMESPACE ID CLEAR FILE")
	}
	ring, err := sealed.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	content, err := ring.SealDocument(events.Document(args[1], sealed.Kind, args[2]), []byte(args[3]))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[4]), content, 0o600))
}

// openFile fails unless a sealed document in a file has a clear value: unseal KEYS NAMESPACE ID CLEAR FILE
func openFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 5 {
		ts.Fatalf("usage: unseal KEYS NAMESPACE ID CLEAR FILE")
	}
	ring, err := sealed.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	plain, err := ring.OpenDocument(events.Document(args[1], sealed.Kind, args[2]), []byte(ts.ReadFile(args[4])))
	ts.Check(err)
	if string(plain) != args[3] {
		ts.Fatalf("%q is sealed, not %q", plain, args[3])
	}
}

// If a rotation is killed at any moment, all documents open, each sealed with one key or another, and the next
// rotation continues.
func TestKillRotate(t *testing.T) {
	testkit.OnlyFull(t, "TestKillAppend kills a process")
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	kills := 6
	if testkit.Soak() {
		kills = 200
	}
	const documents = 600
	dir := t.TempDir()
	store, keys := filepath.Join(dir, "store"), filepath.Join(dir, "keys")
	var text strings.Builder
	another := func(n int) { // adds a key, so that the rotation has work
		fmt.Fprintf(&text, "k%d:%064x\n", n, n+1)
		if err := os.WriteFile(keys, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	another(0)
	output(t, sealedDocuments(t, keys, documents), store, "tally", "append")
	// The kill follows the running time of a rotation on this machine: if one had not begun, the next gets more time;
	// if one was done, less.
	between, most, round := 0, 500*time.Millisecond, 0
	for ; round < kills || between == 0; round++ {
		if round > 100*kills {
			t.Fatalf("none of %d rotations was killed between two documents: the test showed nothing", round)
		}
		another(round + 1)
		killed := kill(t, withKeys(command(ctx, store, "tally", "secrets", "rotate"), keys), most)
		switch n := mustAllOpen(t, store, keys, documents); {
		case !killed:
			most -= most / 5
		case n == 0:
			most += most / 5
		case n < documents:
			between++
		}
	}
	if out, err := withKeys(command(ctx, store, "tally", "secrets", "rotate"), keys).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := mustAllOpen(t, store, keys, documents); n != documents {
		t.Errorf("got %d of %d documents sealed with the newest key", n, documents)
	}
	t.Logf("%d of %d were killed between two documents", between, round)
}

func withKeys(c *exec.Cmd, keys string) *exec.Cmd {
	c.Env = append(c.Env, sealed.Variable+"="+keys)
	return c
}

// sealedDocuments returns events that write sealed documents.
func sealedDocuments(t *testing.T, keys string, n int) io.Reader {
	t.Helper()
	ring, err := sealed.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range n {
		doc := events.Document("", sealed.Kind, fmt.Sprint("s", i))
		content, err := ring.SealDocument(doc, []byte("clear"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, `{"specversion":"1.0","id":"d%d","source":"urn:test:kill","type":"%s","subject":"%s","datacontenttype":"application/json","data":%s}`+"\n", i, events.TypeDocumentWritten, doc, content)
	}
	return strings.NewReader(b.String())
}

// mustAllOpen expects a number of sealed documents that all open, and returns how many are sealed with the newest key.
func mustAllOpen(t *testing.T, store, keys string, documents int) int {
	t.Helper()
	text, err := withKeys(command(t.Context(), store, "tally", "secrets", "check", "-o", "json"), keys).Output()
	var found struct {
		Documents, Open int
		Keys            []struct{ Documents int }
	}
	if err := errors.Join(err, json.Unmarshal(text, &found)); err != nil || found.Documents != documents || found.Open != documents {
		t.Fatalf("%v\n%s", err, text)
	}
	return found.Keys[len(found.Keys)-1].Documents
}

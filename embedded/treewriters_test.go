package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// A writer is a way to store and acknowledge content. It writes a text to a note, or names another file and the text
// that the file must have then.
type writer struct {
	name string
	put  func(id, text string) (file, want string, err error)
}

// saving returns a writer that only writes.
func saving(name string, put func(id, text string) error) writer {
	return writer{name, func(id, text string) (string, string, error) { return id, text, put(id, text) }}
}

// noteOf returns the event that writes a note.
func noteOf(id, text string) events.Event {
	return events.Event{Source: "urn:writers", Type: events.TypeDocumentWritten, Subject: events.Document("", "note", id), ContentType: events.ContentTypeRaw, Data: []byte(text)}
}

// storeWriters returns a writer for each call of a store that appends.
func storeWriters(ctx context.Context, who string, st *tally.Store) []writer {
	sub := func(id string) events.Subject { return events.Document("", "note", id) }
	part := func(id, text string) log.Part {
		return log.Part{Subject: sub(id), Events: []events.Event{noteOf(id, text)}}
	}
	list := []writer{
		saving("Save", func(id, text string) error {
			_, err := st.Documents().Save(ctx, "note", id, tally.Write{Data: []byte(text)})
			return err
		}),
		saving("Tx", func(id, text string) error {
			return st.Documents().Tx(ctx, func(tx *tally.Tx) error {
				return errors.Join(tx.Save(ctx, "note", id, tally.Write{Data: []byte(text)}), tx.Save(ctx, "note", id+".2", tally.Write{Data: []byte(text)}))
			})
		}),
		saving("Append", func(id, text string) error {
			_, err := st.Append(ctx, sub(id), log.Any, noteOf(id, text))
			return err
		}),
		saving("AppendSeries", func(id, text string) error {
			_, _, err := st.AppendSeries(ctx, sub(id), log.Any, noteOf(id, "before"), noteOf(id, text))
			return err
		}),
		saving("AppendAll", func(id, text string) error {
			_, err := st.AppendAll(ctx, part(id+".2", "beside"), part(id, text))
			return err
		}),
		saving("Log.Append", func(id, text string) error {
			_, err := st.Log.Append(ctx, sub(id), log.Any, noteOf(id, text))
			return err
		}),
		saving("Log.AppendBuffered", func(id, text string) error {
			_, err := st.Log.AppendBuffered(ctx, sub(id), log.Any, noteOf(id, text))
			return err
		}),
		saving("Log.AppendSeries", func(id, text string) error {
			_, _, err := st.Log.AppendSeries(ctx, sub(id), log.Any, noteOf(id, "before"), noteOf(id, text))
			return err
		}),
		saving("Log.AppendAll", func(id, text string) error {
			_, err := st.Log.AppendAll(ctx, part(id+".2", "beside"), part(id, text))
			return err
		}),
		saving("Log.AppendAsync", func(id, text string) error {
			_, err := st.Log.AppendAsync(ctx, sub(id), log.Any, noteOf(id, text)).Wait(ctx)
			return err
		}),
		saving("Log.AppendAsyncBuffered", func(id, text string) error {
			_, err := st.Log.AppendAsyncBuffered(ctx, sub(id), log.Any, noteOf(id, text)).Wait(ctx)
			return err
		}),
		saving("import", func(id, text string) error {
			dir, err := os.MkdirTemp("", "writers-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			if err := os.WriteFile(filepath.Join(dir, id), []byte(text), 0o600); err != nil {
				return err
			}
			from, err := layouts.OpenDir(dir)
			if err != nil {
				return err
			}
			defer from.Close()
			_, err = notes{}.ImportFrom(ctx, st, from, layouts.Root{}, layouts.ImportOptions{})
			return err
		}),
		{"ingest", func(id, text string) (string, string, error) {
			dir, err := os.MkdirTemp("", "writers-")
			if err != nil {
				return "", "", err
			}
			defer os.RemoveAll(dir)
			session := "s-" + id + "-" + text
			line := fmt.Sprintf(`{"type":"user","uuid":%q,"sessionId":%q,"timestamp":"2026-03-01T12:00:00Z","message":{"role":"user","content":%q}}`+"\n", session, session, text)
			if err := os.MkdirAll(filepath.Join(dir, "p"), 0o700); err != nil {
				return "", "", err
			}
			if err := os.WriteFile(filepath.Join(dir, "p", session+".jsonl"), []byte(line), 0o600); err != nil {
				return "", "", err
			}
			in, err := ingest.New(ingest.Options{Log: st.Log, Sources: []ingest.Source{{Agent: claude.Agent{}, Root: dir}}, Once: true})
			if err != nil {
				return "", "", err
			}
			return "claude/p/" + session + ".turns", text + "\n", errors.Join(in.Run(ctx), in.Close())
		}},
	}
	for i := range list {
		list[i].name = who + ", " + list[i].name
	}
	return list
}

// wireWriter returns a writer that is a client in another language.
func wireWriter(name string, nc *nats.Conn) writer {
	return saving(name, func(id, text string) error {
		e := noteOf(id, text)
		e.ID = fmt.Sprint(name, id, text)
		raw, err := events.AppendJSON(nil, e)
		if err != nil {
			return err
		}
		m, err := nc.Request("tally.api.v1.append", []byte(`{"subject":"document/note/`+id+`","events":[`+string(raw)+`]}`), time.Minute)
		if err != nil {
			return err
		}
		var said struct {
			Last    events.Offset
			Unshown any
			Error   any
		}
		if err := json.Unmarshal(m.Data, &said); err != nil || said.Error != nil || said.Unshown != nil || said.Last == 0 {
			return fmt.Errorf("%s, %v", m.Data, err)
		}
		return nil
	})
}

// writersOf opens a store in every way. Outside of the test, each would be a process of its own.
func writersOf(t *testing.T, n noted) []writer {
	ctx, url := t.Context(), ""
	l := &embedded.Listen{Address: "127.0.0.1:0", Users: []embedded.Account{{Name: "ann", Password: "secret"}}, Ready: func(at string) { url = at }}
	owner := n.open(embedded.Options{Trees: notesOf, Own: true, Listen: l})
	list := storeWriters(ctx, "owner", owner)
	list = append(list, storeWriters(ctx, "attached, keeps trees", n.keeps())...)
	list = append(list, storeWriters(ctx, "attached", n.open(embedded.Options{}))...)
	list = append(list, storeWriters(ctx, "user of a server", n.open(embedded.Options{Backend: "nats", URL: as(url, "ann:secret")}))...)
	text, err := os.ReadFile(filepath.Join(n.dir, "owner.json"))
	if err != nil {
		t.Fatal(err)
	}
	var of struct{ URL, User, Token string }
	if err := json.Unmarshal(text, &of); err != nil {
		t.Fatal(err)
	}
	for name, where := range map[string]string{"wire, of a user": as(url, "ann:secret"), "wire, attached": as(of.URL, of.User+":"+of.Token)} {
		nc, err := nats.Connect(where)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		list = append(list, wireWriter(name, nc))
	}
	slices.SortFunc(list, func(a, b writer) int { return strings.Compare(a.name, b.name) })
	return list
}

// unshown plays a random program through writers, and returns the first acknowledgement whose file does not show the
// acknowledged text.
func unshown(n noted, writers []writer, rng *rand.Rand, steps int) error {
	order := append(rng.Perm(len(writers)), make([]int, max(0, steps-len(writers)))...)
	for i := len(writers); i < len(order); i++ {
		order[i] = rng.IntN(len(writers))
	}
	for step, at := range order {
		d := writers[at]
		file, want, err := d.put(fmt.Sprint("n", rng.IntN(4)), fmt.Sprint("text-", step))
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", step, d.name, err)
		}
		if got, err := os.ReadFile(filepath.Join(n.folder, file)); err != nil || string(got) != want {
			return fmt.Errorf("step %d, %s: acknowledged: file %s: got %q, %v, want %q", step, d.name, file, got, err, want)
		}
	}
	return nil
}

// Every way to append waits for the files of trees in mode sync.
func TestTreeWriters(t *testing.T) {
	n := newNoted(t, "mode = \"sync\"\n")
	writers := writersOf(t, n)
	steps := len(writers) + 20
	if testkit.Soak() {
		steps = 3000
	}
	seed := testkit.Seed(t)
	t.Run("B-41 every writer that acknowledges waits for the files", func(t *testing.T) {
		if err := unshown(n, writers, rand.New(rand.NewPCG(seed, 1)), steps); err != nil {
			t.Error(err)
		}
	})
	t.Run("B-41 a build that does not wait is caught", func(t *testing.T) {
		embedded.ShowNothing(t)
		if err := unshown(n, writers, rand.New(rand.NewPCG(seed, 2)), steps); err == nil {
			t.Error("appends that do not wait: got no error from the law")
		}
	})
}

// If content was acknowledged without a keeper, or the keeper died before it wrote the file, the next keeper writes
// the file, however short its life is.
func TestTreeNextKeeper(t *testing.T) {
	n := newNoted(t, "mode = \"sync\"\n")
	for round := range 8 {
		if err := n.keeps().Close(); err != nil {
			t.Fatal(err)
		}
		st, text := n.open(embedded.Options{}), fmt.Sprint(round)
		if err := errors.Join(n.put(st, "a", text), st.Close()); err != nil {
			t.Fatal(err)
		}
		if err := n.keeps().Close(); err != nil {
			t.Fatal(err)
		}
		t.Run("B-41 the next keeper shows what the last one left", func(t *testing.T) { n.shows("a", text) })
	}
}

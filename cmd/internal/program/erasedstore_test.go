package program_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minio/highwayhash"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/program"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// erased returns a copy of the store in which some records are erased.
func (s *allStore) erased(t *testing.T, which func(events.Event) bool) (dir string, n int) {
	t.Helper()
	dir = s.copy(t)
	key := sha256.Sum256([]byte("TALLY_1-1"))
	flip(t, filepath.Join(dir, s.path), func(data []byte) {
		for _, r := range s.records {
			record := data[r.Begin:r.End]
			at := 22 + len(r.Subject) // of the length of the headers, behind the record's own and the subject
			body := record[at+4 : len(record)-8]
			headers := binary.LittleEndian.Uint32(record[at:])
			e, ok := events.DecodeWire(r.Subject, string(body[:headers]), bytes.Clone(body[headers:]))
			if !ok {
				t.Fatalf("%v cannot be read", r)
			}
			erased, err := e.Erase("r7k2p9")
			if err != nil {
				t.Fatalf("%v: %v", r, err)
			}
			if !which(e) || erased.Erased() == "" {
				continue
			}
			n++
			header := append(events.AppendHeader([]byte("NATS/1.0\r\nNats-Msg-Id: "+e.MsgID()+"\r\n"), erased), "\r\n"...)
			payload := []byte(strings.Repeat(" ", len(body)-len(header)-len(erased.Data)))
			if len(erased.Data) > 0 {
				payload = slices.Concat([]byte("{"), payload, erased.Data[1:])
			}
			binary.LittleEndian.PutUint32(record[at:], uint32(len(header)))
			copy(body[copy(body, header):], payload)
			hashed := slices.Concat(record[4:20], []byte(r.Subject), body)
			binary.LittleEndian.PutUint64(record[len(record)-8:], highwayhash.Sum64(hashed, key[:]))
		}
	})
	return dir, n
}

// A forgotten store is exported in every layout. A new store imports the files, and the store itself refuses them.
func TestForgottenStoreIsExported(t *testing.T) {
	testkit.OnlyFull(t, "TestErasedStore plays every reading command, TestErased an export")
	testkit.NotUnderRace(t)
	quietHome(t)
	s := newAllStore(t)
	dir := s.copy(t)
	run := func(store string, args ...string) (string, int) {
		t.Helper()
		t.Setenv("TALLY_STORE", store)
		var out bytes.Buffer
		err := cmdutil.Run(t.Context(), program.Tally, args, strings.NewReader(""), &out, &out)
		code := cli.Report(&out, "tally", err)
		return out.String(), code
	}
	whole := make(map[string]string) // exports of before, by layout
	for _, l := range cmdutil.Layouts {
		whole[l.Name()] = t.TempDir()
		if out, code := run(dir, "export", "--all", "--format", l.Name(), "-C", whole[l.Name()]); code != 0 {
			t.Fatalf("export %s: code %d, %s", l.Name(), code, out)
		}
	}
	if out, code := run(dir, "forget", "--before", "2100-01-01", "-y"); code != 0 || !strings.Contains(out, "Forgotten: ") {
		t.Fatalf("code %d: %s", code, out)
	}
	for _, l := range cmdutil.Layouts {
		t.Run("X-16 "+l.Name(), func(t *testing.T) {
			to := t.TempDir()
			out, code := run(dir, "export", "--all", "--format", l.Name(), "-C", to)
			if l.Name() == "ailoop" && strings.Contains(out, "receipt") { // it has no form for an erased history
				return
			}
			if code != 0 || strings.Contains(out, "damage") {
				t.Errorf("export: code %d, %s", code, out)
			}
			out, _ = run(filepath.Join(t.TempDir(), "new"), "import", to, "--format", l.Name())
			if strings.Contains(out, "damage") || !strings.Contains(out, "events added") {
				t.Errorf("import into a new store: %s", out)
			}
			for _, flags := range [][]string{nil, {"--merge"}} {
				out, _ = run(dir, append([]string{"import", to, "--format", l.Name()}, flags...)...)
				if strings.Contains(out, "damage") || !strings.Contains(out, "unchanged)") {
					t.Errorf("import into the store itself %v: %s", flags, out)
				}
				out, code = run(dir, append([]string{"import", whole[l.Name()], "--format", l.Name()}, flags...)...)
				if l.Name() != "tavern" && (code != cli.Partial || !strings.Contains(out, "was erased (receipt")) {
					t.Errorf("import of what was forgotten %v: code %d, %s", flags, code, out)
				}
			}
		})
	}
	if out, code := run(dir, "verify"); code != 0 {
		t.Errorf("verify: code %d, %s", code, out)
	}
}

// isErasable reports whether an event is content of a session or of a document that is no work under way.
func isErasable(e events.Event) bool {
	sub := e.Subject
	switch {
	case sub.IsSession():
		kind := events.KindOf(sub.ID)
		return events.CanRewind(kind) && kind != events.KindAgent
	case sub.Kind == events.KindType, sub.Kind == events.KindUnit, sub.Kind == events.KindAgent, sub.Kind == "workflow", sub.Kind == "overlay":
		return false
	}
	return true
}

// isWithoutFile has the questions for a word or a file that was the content.
var isWithoutFile = map[string]bool{
	"tally search plum": true, "perstack.Handle.JobBytes": true, "perstack.Handle.Load": true, "perstack.Handle.MostRecentRun": true,
	"perstack.Setting": true, "perstack.RetrieveJob": true,
}

// All content of a store with all kinds of records is erased: every reading command and call answers, and nobody
// reports damage.
func TestErasedStore(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t)
	quietHome(t)
	s := newAllStore(t)
	probe, err := embedded.Open(t.Context(), embedded.Options{Backend: "memory"})
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	list := questions(probe)
	healthy := s.copy(t)
	forget(t, healthy)
	before := answersOf(t, healthy, list)
	dir, n := s.erased(t, isErasable)
	forget(t, dir)
	t.Logf("%d of %d records are erased", n, len(s.records))
	t.Run("X-16 every reading command and call", func(t *testing.T) {
		for i, now := range answersOf(t, dir, list) {
			isGone := now.code == cli.NotFound && (strings.Contains(now.err, "was erased (receipt r7k2p9)") || isWithoutFile[list[i].name])
			if now.code < 0 || now.code == cli.Integrity || strings.Contains(now.err, "damage") || !list[i].decides && now.code != before[i].code && !isGone {
				t.Errorf("%s: %.400s\n   before: %.300s", list[i].name, strings.ReplaceAll(now.String(), "\n", "⏎"), strings.ReplaceAll(before[i].String(), "\n", "⏎"))
			}
		}
	})
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

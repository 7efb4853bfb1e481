package tallydir_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/formats/tallydir"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/logtest"
	"github.com/tallylog/tally/projector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is the least that an import and an export need: a log and a loader.
type store struct {
	*log.Log
	ns string
}

var (
	_ formats.Target = store{}
	_ formats.Target = (*tally.Store)(nil)
)

func (st store) Namespace() string         { return st.ns }
func (st store) Loader() *projector.Loader { return &projector.Loader{Source: st.Log} }

func (st store) Subjects(ctx context.Context, kind string) iter.Seq2[log.SubjectInfo, error] {
	return st.Log.Subjects(ctx, st.ns, kind)
}

func (st store) Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error) {
	ready := slices.Clone(evs)
	for i, e := range ready {
		if len(e.Data) <= events.MaxData {
			continue
		}
		ref, err := st.PutBlob(ctx, e.Data)
		if err != nil {
			return log.Ack{}, err
		}
		e.Data = nil
		ready[i] = e.WithExtension(events.ExtDataRef, ref)
	}
	return st.Log.Append(ctx, sub, expect, ready...)
}

func (st store) PutBlob(ctx context.Context, content []byte) (string, error) {
	sum := sha256.Sum256(content)
	id := hex.EncodeToString(sum[:])
	doc := events.Document(st.ns, events.KindBlob, id)
	count := max(1, (len(content)+events.MaxBlobPart-1)/events.MaxBlobPart)
	for i := range count {
		e := events.Event{ID: "part-" + strconv.Itoa(i), Source: "urn:test:blob", Type: events.TypeDocumentWritten, Subject: doc,
			ContentType: events.ContentTypeRaw, Data: bytes.Clone(content[i*events.MaxBlobPart : min(len(content), (i+1)*events.MaxBlobPart)])}
		e = e.WithExtension(events.ExtDoc, events.DocMeta{Part: &events.Part{Index: i, Count: count, SHA256: id}}.String())
		if _, err := st.Log.Append(ctx, doc, log.Any, e); err != nil {
			return "", err
		}
	}
	return events.BlobRef(id), nil
}

func openStore(t testing.TB) store { return store{logtest.Open(t), events.DefaultNamespace} }

func mustImport(t testing.TB, st store, dir string) formats.Report {
	t.Helper()
	r, err := tallydir.Import(t.Context(), st, dir, formats.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustBeClean imports a folder in which nothing is wrong.
func mustBeClean(t testing.TB, st store, dir string) formats.Report {
	t.Helper()
	r := mustImport(t, st, dir)
	for _, p := range r.Problems {
		t.Errorf("problem: %v", p)
	}
	return r
}

func mustExport(t testing.TB, st store, dir string, o formats.ExportOptions) formats.Report {
	t.Helper()
	d, err := formats.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if o.Session == "" {
		o.All = true
	}
	r, err := formats.Export(t.Context(), st, tallydir.Layout{}, d, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Problems {
		t.Errorf("export: %v", p)
	}
	return r
}

// exported gives all files of an export to a fresh folder.
func exported(t testing.TB, st store) map[string]string {
	t.Helper()
	dir := t.TempDir()
	mustExport(t, st, dir, formats.ExportOptions{})
	return readTree(t, dir)
}

// readTree reads every file below a folder.
func readTree(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func writeTree(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// mustEqual compares trees byte for byte.
func mustEqual(t testing.TB, want, got map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		have, ok := got[name]
		if !ok {
			t.Errorf("%s: missing", name)
		} else if have != want[name] {
			t.Errorf("%s: differs\nwant %.300q\nhave %.300q", name, want[name], have)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: was not there", name)
		}
	}
}

// realData gives a folder of recorded sessions.
func realData(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		candidate := filepath.Join(dir, "..", "shared", "data", "tally", name)
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			if _, err := os.Stat(candidate); err != nil {
				t.Skipf("no recorded sessions beside the repository: %v", err)
			}
			return candidate
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Skip("no go.mod above the test")
		}
		dir = parent
	}
}

const conv = "conversations/c1/"

// smallTree is one conversation with every kind of file, as its writer makes them.
func smallTree() map[string]string {
	return map[string]string{
		conv + "meta.json":                "{\n  \"id\": \"c1\",\n  \"createdAt\": \"2026-01-23T12:27:07.775Z\"\n}",
		conv + "conversation.jsonl":       step(0) + "\n" + step(1) + "\n" + step(2),
		conv + "trajectory.meta.json":     "{\n  \"version\": 1,\n  \"goal\": \"a < b & c\"\n}",
		conv + "stepTraces.json":          traces(3),
		conv + "runs/tally/run-1-a.json":  "{\n  \"runId\": \"run-1-a\",\n  \"createdAt\": \"2026-01-23T12:37:18.912Z\"\n}",
		conv + "runs/trajectory/r-2.json": "{\n  \"runId\": \"r-2\",\n  \"completed\": false,\n  \"reason\": \"max-turns\"\n}",
	}
}

func step(n int) string {
	i := strconv.Itoa(n)
	return `{"stepIndex":` + i + `,"input":{"role":"user","content":"q` + i + `"},"output":[],"timestamp":"2026-01-23T12:35:4` + i + `.000Z",` +
		`"metadata":{"originalTurnIndex":` + i + `,"stepId":null,"selection":{"method":"none"}},"conversationId":"c1"}`
}

func traces(n int) string {
	var list []string
	for i := range n {
		i := strconv.Itoa(i)
		list = append(list, "  {\n    \"turnIndex\": "+i+",\n    \"userMessage\": {\n      \"role\": \"user\",\n      \"content\": \"q"+i+"\"\n    },\n"+
			"    \"agentMessages\": [],\n    \"timestamp\": \"2026-01-23T12:35:4"+i+".000Z\",\n    \"stepId\": null,\n    \"selection\": {\n      \"method\": \"none\"\n    }\n  }")
	}
	return "[\n" + strings.Join(list, ",\n") + "\n]"
}

var (
	layout    = tallydir.Layout{}
	anyOffset = log.Any
)

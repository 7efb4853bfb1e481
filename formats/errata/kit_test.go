package errata_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/formats/errata"
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

var _ formats.Target = store{}

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

func mustImport(t testing.TB, st formats.Target, dir string) formats.Report {
	t.Helper()
	r, err := errata.Import(t.Context(), st, dir, formats.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustBeClean imports a folder in which nothing is wrong.
func mustBeClean(t testing.TB, st formats.Target, dir string) formats.Report {
	t.Helper()
	r := mustImport(t, st, dir)
	for _, p := range r.Problems {
		t.Errorf("problem: %v", p)
	}
	return r
}

func mustExport(t testing.TB, st formats.Source, layout errata.Layout, dir string, o formats.ExportOptions) formats.Report {
	t.Helper()
	d, err := formats.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	o.All = o.Session == ""
	r, err := formats.Export(t.Context(), st, layout, d, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Problems {
		t.Errorf("export: %v", p)
	}
	return r
}

// exported gives all files of an export to a fresh folder.
func exported(t testing.TB, st formats.Source) map[string]string {
	t.Helper()
	dir := t.TempDir()
	mustExport(t, st, errata.Layout{}, dir, formats.ExportOptions{})
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
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// folder writes a tree to the folder data of a project proj.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	return writeTree(t, filepath.Join(t.TempDir(), "proj", "data"), files)
}

// replaceTree puts another tree in the place of what is in a folder.
func replaceTree(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	writeTree(t, dir, files)
}

// mustEqual compares trees byte for byte.
func mustEqual(t testing.TB, want, got map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		have, ok := got[name]
		if !ok {
			t.Errorf("%s: missing", name)
		} else if have != want[name] {
			t.Errorf("%s: differs\nwant %.700q\nhave %.700q", name, want[name], have)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: was not there", name)
		}
	}
}

// change gives a copy of a tree in which files are others; "-" takes one away.
func change(tree map[string]string, changes ...string) map[string]string {
	tree = maps.Clone(tree)
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] == "-" {
			delete(tree, changes[i])
		} else {
			tree[changes[i]] = changes[i+1]
		}
	}
	return tree
}

func load(t testing.TB, st store, id string) *projector.Session {
	t.Helper()
	s, err := st.Loader().Session(t.Context(), events.Session(st.ns, id), 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// live appends what no import made.
func live(t testing.TB, st store, id string, expect log.Expect, p events.Payload) {
	t.Helper()
	e, err := events.New("urn:test:live", events.Session(st.ns, id), p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Append(t.Context(), e.Subject, expect, e); err != nil {
		t.Fatal(err)
	}
}

// marshal writes a value as the original does.
func marshal(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

package cmd_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// An oldStore is a store of made-up data with its snapshots and views, and the answers of the program that wrote it.
// Nobody edits its files.
type oldStore struct {
	folder  string
	says    map[string]string // commands whose output was kept, by the name of its file
	folds   []string          // sessions whose fold was kept
	formats []string          // layouts whose files were kept
}

// before is a store of fold version 3 and catalog version 2.
var before = oldStore{
	folder: "testdata/before",
	says: map[string]string{
		"ls": "ls --sort last -o json", "trip": "show trip --all -o json", "fork": "show trip-2 --all -o json", "fork-of-fork": "show trip-3 -o json",
		"at": "show trip --at #2 -o json", "notes": "show notes --all -o json", "chat": "show history/chat -o json", "panel": "show ses_1 -o json",
		"log": "log --all-sessions -o jsonl", "trip-log": "log trip -o jsonl", "data": "log trip --raw", "runs": "runs trip -o json", "panel-runs": "runs ses_1 -o json",
		"cost": "cost -o json", "cost-trip": "cost trip -o json", "cost-day": "cost --by day -o json", "stats": "stats --by model -o json",
		"search": "search lighthouse --all -o json", "diff": "diff trip #1 head -o json",
	},
	folds:   strings.Fields("trip trip-2 trip-3 notes history/chat ses_1 ses_2 prompts"),
	formats: strings.Fields("tallydir errata ailoop markdown"),
}

// allKinds has records of every kind, of the five layouts: commit 1927980 wrote it.
var allKinds = oldStore{
	folder: "testdata/allkinds",
	says: map[string]string{
		"ls": "ls --sort last -o json", "trip": "show trip --all -o json", "conversation": "show conv --all -o json", "chat": "show history/chat --all -o json",
		"panel": "show ses_1 --all -o json", "job": "show job/j1 --all -o json", "log": "log --all-sessions -o jsonl", "data": "log trip --raw", "runs": "runs trip -o json",
		"cost": "cost -o json", "search": "search plum --all -o json", "docs": "doc ls -o json", "history": "doc log doc/a -o json", "revision": "doc cat doc/a@17",
		"workflow": "doc cat workflow/release", "inbox": "inbox ls user -o json",
	},
	folds:   strings.Fields("trip trip-fork conv history/chat ses_1 job/j1 prompts"),
	formats: strings.Fields("tallydir errata ailoop perstack tavern markdown"),
}

var sayBefore = flag.Bool("before", false, "write what this build says of the stores of before: only for a new store")

// A store of an earlier version opens, folds and exports as it did then.
func TestStoreOfBefore(t *testing.T) {
	testkit.OnlyFull(t, "TestStoreOfAllKinds opens a store of an earlier version too")
	before.check(t)
}

// A store with every kind of record opens, folds and exports as it did then.
func TestStoreOfAllKinds(t *testing.T) { allKinds.check(t) }

func (o oldStore) check(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	mustUnpack(t, filepath.Join(o.folder, "store.tar.gz"), store)
	for _, folder := range []string{"kept", "anew"} { // with its snapshots and views, and without
		t.Run(folder, func(t *testing.T) {
			for i, name := range slices.Sorted(maps.Keys(o.says)) {
				if !testkit.Plays(i, map[string]int{"kept": 8, "anew": 16}[folder]) {
					continue
				}
				o.mustSay(t, name, []byte(output(t, nil, store, "tally", strings.Split(o.says[name], " ")...)))
			}
			o.mustSay(t, "folds", foldsOf(t, store, o.folds))
			o.mustExport(t, store)
			if out := output(t, nil, store, "tally", "verify", "-o", "json"); !strings.Contains(out, `"findings": []`) {
				t.Errorf("verify: got %s", out)
			}
		})
		for _, name := range []string{"snapshots", "views.db", "search.db", "work.db"} {
			if err := os.RemoveAll(filepath.Join(store, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// mustSay compares an answer with the kept one. Objects may have more members; text that is not JSON must be the same.
func (o oldStore) mustSay(t *testing.T, name string, out []byte) {
	t.Helper()
	file := filepath.Join(o.folder, name+".json")
	if *sayBefore {
		if err := os.WriteFile(file, out, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(want[:max(bytes.IndexByte(want, '\n'), 0)]) && !json.Valid(want) {
		if !bytes.Equal(want, out) {
			t.Errorf("%s: got %q, want %q", name, out, want)
		}
		return
	}
	if diff := missing("", jsonOf(t, want), jsonOf(t, out)); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}

// jsonOf reads all JSON values of a file.
func jsonOf(t *testing.T, text []byte) (list []any) {
	t.Helper()
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var v any
		d.UseNumber()
		switch err := d.Decode(&v); {
		case errors.Is(err, io.EOF):
			return list
		case err != nil:
			t.Fatal(err)
		}
		list = append(list, v)
	}
}

// missing returns the first value in want that have lacks, or an empty text.
func missing(path string, want, have any) string {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(w)) {
			if diff := missing(path+"."+name, w[name], h[name]); diff != "" {
				return diff
			}
		}
		return ""
	case []any:
		h, ok := have.([]any)
		if !ok || len(h) != len(w) {
			break
		}
		for i := range w {
			if diff := missing(fmt.Sprintf("%s[%d]", path, i), w[i], h[i]); diff != "" {
				return diff
			}
		}
		return ""
	default:
		if want == have {
			return ""
		}
	}
	return fmt.Sprintf("%s is %.200v, was %.200v", path, have, want)
}

// foldsOf returns the fold of each session.
func foldsOf(t *testing.T, dir string, ids []string) []byte {
	t.Helper()
	st, err := embedded.Open(t.Context(), embedded.Options{Backend: "local", Store: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	folds := make(map[string]any)
	for _, id := range ids {
		s, err := st.Session(id).Load(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		folds[id] = foldOf(s)
	}
	text, err := json.MarshalIndent(folds, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func foldOf(s *projector.Session) any {
	costs, err := tally.CostsOf(s)
	return map[string]any{"ledger": ledgerOf(s.Ledger), "threads": s.Threads.Hash(), "live": s.History.Live(s.Offset()), "late": s.History.Stale(),
		"spent": costs.Spent.Total, "onBranch": costs.OnBranch.Total, "damaged": s.Damaged, "err": err}
}

// ledgerOf writes a ledger in its earlier form: each rewind with the stack before it.
func ledgerOf(l *projector.Ledger) any {
	type rewind struct {
		projector.Rewind
		Stack []projector.StackEntry `json:"stack,omitempty"`
	}
	out := struct {
		*projector.Ledger
		Rewinds []rewind `json:"rewinds,omitempty"`
	}{Ledger: l}
	for _, r := range l.Rewinds {
		out.Rewinds = append(out.Rewinds, rewind{r, l.StackBefore(r)})
	}
	return out
}

// mustExport fails unless the exported files equal the kept ones.
func (o oldStore) mustExport(t *testing.T, store string) {
	t.Helper()
	out, want := t.TempDir(), t.TempDir()
	for _, format := range o.formats {
		output(t, nil, store, "tally", "export", "--all", "--format", format, "-C", filepath.Join(out, format))
	}
	if *sayBefore {
		mustPack(t, out, filepath.Join(o.folder, "exports.tar.gz"))
	}
	mustUnpack(t, filepath.Join(o.folder, "exports.tar.gz"), want)
	if o.folder == before.folder {
		mustReplace(t, filepath.Join(want, "markdown", "trip.md"), "`0.5 USD, computed`", "`~0.5 USD, computed`, `? USD, unknown: 1 cost`") // pages have more about costs now
	}
	if diff, err := exec.CommandContext(context.Background(), "diff", "-r", want, out).CombinedOutput(); err != nil {
		t.Errorf("diff -r: %v\n%.2000s", err, diff)
	}
}

// mustReplace replaces a text that a file has exactly once.
func mustReplace(t *testing.T, file, old, by string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil && bytes.Count(text, []byte(old)) != 1 {
		err = fmt.Errorf("%s does not have %q exactly once", file, old)
	}
	if err == nil {
		err = os.WriteFile(file, bytes.Replace(text, []byte(old), []byte(by), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func mustUnpack(t *testing.T, file, to string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(to, h.Name)
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o700)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, data, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func mustPack(t *testing.T, dir, file string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := errors.Join(w.AddFS(os.DirFS(dir)), w.Close(), z.Close(), os.WriteFile(file, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

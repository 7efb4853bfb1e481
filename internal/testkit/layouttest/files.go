package layouttest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
)

// files is a layouts.Storage in memory, as far as an export needs one.
type files struct {
	layouts.Storage // nil: panics if an export uses another method
	content         map[string]string
	modes           map[string]fs.FileMode // nil: not needed
}

func (f files) Stat(_ context.Context, name string) (layouts.FileInfo, error) {
	content, ok := f.content[name]
	if !ok {
		return layouts.FileInfo{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return layouts.FileInfo{Name: path.Base(name), Size: int64(len(content))}, nil
}

func (f files) Write(_ context.Context, name string, mode fs.FileMode, content func(io.Writer) error) error {
	if f.content[name] != "" {
		return errors.New("written twice")
	}
	var b bytes.Buffer
	err := content(&b)
	f.content[name] = b.String()
	if f.modes != nil {
		f.modes[name] = mode
	}
	return err
}

// Exported returns all files of a store in a layout, by their paths.
func Exported(t testing.TB, src layouts.Source, layout layouts.Layout) (map[string]string, layouts.Report) {
	t.Helper()
	f := files{content: make(map[string]string)}
	r, err := layouts.Export(t.Context(), src, layout, f, layouts.ExportOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	return f.content, r
}

// MustExport writes a session, or all of them if the options name no session, to a folder.
func MustExport(t testing.TB, src layouts.Source, layout layouts.Layout, dir string, o layouts.ExportOptions) layouts.Report {
	t.Helper()
	d, err := layouts.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	o.All = o.Session == ""
	r, err := layouts.Export(t.Context(), src, layout, d, o)
	if err != nil {
		t.Fatal(err)
	}
	MustBeClean(t, r)
	return r
}

// MustBeClean requires a report without problems.
func MustBeClean(t testing.TB, r layouts.Report) {
	t.Helper()
	for _, p := range r.Problems {
		t.Errorf("problem: %v", p)
	}
}

// ReadTree reads every file below a folder. A live tree may remove its temporary files meanwhile: ReadTree leaves these
// out.
func ReadTree(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) && layouts.IsTemporary(e.Name()) {
			return nil
		}
		rel, _ := filepath.Rel(dir, file)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// ReadLive returns the files of a live tree: path to content. Temporary copies of replaced files are left out.
func ReadLive(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := ReadTree(t, dir)
	maps.DeleteFunc(files, func(name, _ string) bool { return layouts.IsTemporary(path.Base(name)) })
	return files
}

// WriteTree writes files below a folder, and returns the folder.
func WriteTree(t testing.TB, dir string, perm fs.FileMode, files map[string]string) string {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), perm); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// MustEqual compares files byte for byte.
func MustEqual(t testing.TB, want, have map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		content, ok := have[name]
		if !ok {
			t.Errorf("%s: missing", name)
		} else if content != want[name] {
			t.Errorf("%s: differs\nwant %.700q\ngot  %.700q", name, want[name], content)
		}
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: unexpected file", name)
		}
	}
}

// Change returns a copy of a tree with changes: pairs of a name and its new content. The content "-" removes a file.
func Change(tree map[string]string, changes ...string) map[string]string {
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

// Indent formats compact JSON as JSON.stringify and serde_json do with two spaces. It does not use the code under
// test.
func Indent(compact string) string {
	var b strings.Builder
	depth, text := 0, false
	line := func() { b.WriteString("\n" + strings.Repeat("  ", depth)) }
	for i := 0; i < len(compact); i++ {
		c := compact[i]
		switch {
		case text:
			b.WriteByte(c)
			if c == '\\' {
				i++
				b.WriteByte(compact[i])
			}
			text = c != '"'
			continue
		case c == '"':
			text = true
			b.WriteByte(c)
		case (c == '{' || c == '[') && compact[i+1] == c+2:
			b.WriteString(compact[i : i+2])
			i++
		case c == '{' || c == '[':
			b.WriteByte(c)
			depth++
			line()
		case c == '}' || c == ']':
			depth--
			line()
			b.WriteByte(c)
		case c == ',':
			b.WriteByte(c)
			line()
		case c == ':':
			b.WriteString(": ")
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

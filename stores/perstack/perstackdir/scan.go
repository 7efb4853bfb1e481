package perstackdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Scan implements sessiondir.Found.
func (jf *jobFolder) Scan(context.Context, view) error {
	for _, f := range jf.Files {
		jf.scan(f)
		if f.Sum != "" {
			jf.files[f.Path] = f
		}
	}
	jf.Files = slices.DeleteFunc(jf.Files, func(f *sessiondir.File) bool { return f.Sum == "" && !jf.out[f.Path] }) // removed meanwhile
	inOrder(jf.values)
	return jf.begin()
}

// list finds the files of a folder and its subfolders. It reports unreadable folders and goes on.
func (jf *jobFolder) list(dir string) error {
	entries, err := jf.Tree.Entries(path.Join(jf.Dir, dir))
	if err != nil {
		if dir == "" {
			return err
		}
		jf.out[dir+"/"] = true
		jf.In.Problem(path.Join(jf.Dir, dir), 0, sessiondir.Reason(err)+": nothing below it is imported")
		return nil
	}
	for _, e := range entries {
		rel := path.Join(dir, e.Name)
		switch {
		case e.Dir:
			err = jf.list(rel)
		case sessiondir.IsOdd(e):
			jf.Links = append(jf.Links, path.Join(jf.Dir, rel))
		default:
			err = jf.add(e, rel)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (jf *jobFolder) add(e layouts.FileInfo, rel string) error {
	f, err := sessiondir.FileOf(e, rel, path.Join(jf.Dir, rel))
	if err == nil {
		jf.Files = append(jf.Files, f)
	}
	return err
}

// scan reads a file once. A file that was removed meanwhile gets no sum.
func (jf *jobFolder) scan(f *sessiondir.File) {
	p := locate(f.Path)
	data, err := jf.read(f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		jf.out[f.Path] = true
		f.Problem(0, sessiondir.Reason(err)+": not imported")
		return
	case p.part == partOther:
		if jf.mayKeep(f, "it may hold secrets") {
			jf.notes = append(jf.notes, f.Path)
		}
		return
	case data == nil:
		jf.useless(f, 0, fmt.Sprintf("longer than %d bytes", jf.Limit))
		return
	}
	v := &value{File: f, location: p}
	if err := v.take(jf, data); err != nil {
		f.Format = events.FileFormat{}
		jf.useless(f, sessiondir.LineOf(data, err), sessiondir.ReasonOf(err))
		return
	}
	f.Value, jf.byFile[f], jf.values = true, v, append(jf.values, v)
	jf.guard(v)
}

// useless reports a file that is kept as it is, because it has no usable value.
func (jf *jobFolder) useless(f *sessiondir.File, line int, why string) {
	if jf.mayKeep(f, why) {
		f.Problem(line, why+": kept as it is, nothing is taken from it")
	}
}

// read reads a file and hashes it. If the file is larger than an event may be, read only hashes it and returns nil.
func (jf *jobFolder) read(f *sessiondir.File) (data []byte, err error) {
	if f.Size > int64(jf.Limit) {
		return nil, jf.Tree.Hash(f)
	}
	if data, err = jf.Tree.Read(f, int64(jf.Limit)+1); err != nil {
		return nil, err
	}
	if len(data) > jf.Limit { // it grew
		return nil, jf.Tree.Hash(f)
	}
	f.Sum, f.Size = sessiondir.SumOf(data), int64(len(data))
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

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
func (u *unit) Scan(context.Context, view) error {
	for _, f := range u.Files {
		u.scan(f)
		if f.Sum != "" {
			u.files[f.Path] = f
		}
	}
	u.Files = slices.DeleteFunc(u.Files, func(f *sessiondir.File) bool { return f.Sum == "" && !u.out[f.Path] }) // taken away meanwhile
	inOrder(u.values)
	return u.begin()
}

// list finds the files of a folder and of those in it. What may not be read is reported, and
// everything else goes in.
func (u *unit) list(dir string) error {
	entries, err := u.Tree.Entries(path.Join(u.Dir, dir))
	if err != nil {
		if dir == "" {
			return err
		}
		u.out[dir+"/"] = true
		u.In.Problem(path.Join(u.Dir, dir), 0, sessiondir.Reason(err)+": nothing below it is imported")
		return nil
	}
	for _, e := range entries {
		rel := path.Join(dir, e.Name)
		switch {
		case e.Dir:
			err = u.list(rel)
		case sessiondir.IsOdd(e):
			u.Links = append(u.Links, path.Join(u.Dir, rel))
		default:
			err = u.add(e, rel)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *unit) add(e layouts.FileInfo, rel string) error {
	f, err := sessiondir.FileOf(e, rel, path.Join(u.Dir, rel))
	if err == nil {
		u.Files = append(u.Files, f)
	}
	return err
}

// scan reads a file once. One that was taken away meanwhile gets no sum.
func (u *unit) scan(f *sessiondir.File) {
	p := placeOf(f.Path)
	data, err := u.read(f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		u.out[f.Path] = true
		f.Problem(0, sessiondir.Reason(err)+": not imported")
		return
	case p.part == partOther:
		if u.mayKeep(f, "it may hold secrets") {
			u.notes = append(u.notes, f.Path)
		}
		return
	case data == nil:
		u.useless(f, 0, fmt.Sprintf("longer than %d bytes", u.Limit))
		return
	}
	v := &value{File: f, place: p}
	if err := v.take(u, data); err != nil {
		f.Format = events.FileFormat{}
		u.useless(f, sessiondir.LineOf(data, err), sessiondir.ReasonOf(err))
		return
	}
	f.Value, u.byFile[f], u.values = true, v, append(u.values, v)
	u.guard(v)
}

// useless reports a file that is kept as it is, because nothing can be taken from it.
func (u *unit) useless(f *sessiondir.File, line int, why string) {
	if u.mayKeep(f, why) {
		f.Problem(line, why+": kept as it is, nothing is taken from it")
	}
}

// read reads a file, and hashes it. One that is larger than what an event can hold is only
// hashed: then data is nil.
func (u *unit) read(f *sessiondir.File) (data []byte, err error) {
	if f.Size > int64(u.Limit) {
		return nil, u.Tree.Hash(f)
	}
	if data, err = u.Tree.Read(f, int64(u.Limit)+1); err != nil {
		return nil, err
	}
	if len(data) > u.Limit { // it grew
		return nil, u.Tree.Hash(f)
	}
	f.Sum, f.Size = sessiondir.SumOf(data), int64(len(data))
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

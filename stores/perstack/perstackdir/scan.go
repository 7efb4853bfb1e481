package perstackdir

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// scanned settles what the folder of a job holds.
func (im importer) scanned(at sessiondir.Unit) (*unit, error) {
	u := im.newUnit(at)
	if err := im.list(u, ""); err != nil {
		return nil, err
	}
	for _, f := range u.Files {
		im.scan(u, f)
		if f.Sum != "" {
			u.files[f.Path] = f
		}
	}
	u.Files = slices.DeleteFunc(u.Files, func(f *sessiondir.File) bool { return f.Sum == "" && !u.out[f.Path] }) // taken away meanwhile
	inOrder(u.values)
	return u, u.begin()
}

// list finds the files of a folder and of those in it. What may not be read is reported, and
// everything else goes in.
func (im importer) list(u *unit, dir string) error {
	entries, err := im.Tree.Entries(path.Join(u.Dir, dir))
	if err != nil {
		if dir == "" {
			return err
		}
		u.out[dir+"/"] = true
		im.Problem(path.Join(u.Dir, dir), 0, fileReason(err)+": nothing below it is imported")
		return nil
	}
	for _, e := range entries {
		rel := path.Join(dir, e.Name)
		switch {
		case e.Dir:
			err = im.list(u, rel)
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

func (u *unit) add(e formats.Entry, rel string) error {
	f, err := sessiondir.FileOf(e, rel, path.Join(u.Dir, rel))
	if err == nil {
		u.Files = append(u.Files, f)
	}
	return err
}

// scan reads a file once. One that was taken away meanwhile gets no sum.
func (im importer) scan(u *unit, f *sessiondir.File) {
	p := placeOf(f.Path)
	data, err := im.read(u, f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		u.out[f.Path] = true
		f.Problem(0, fileReason(err)+": not imported")
		return
	case p.part == partOther:
		if im.mayKeep(u, f, "it may hold secrets") {
			u.notes = append(u.notes, f.Path)
		}
		return
	case data == nil:
		im.useless(u, f, 0, fmt.Sprintf("longer than %d bytes", u.Limit))
		return
	}
	v := &value{File: f, place: p}
	if err := v.take(u, data); err != nil {
		f.Format = events.FileFormat{}
		im.useless(u, f, sessiondir.LineOf(data, err), sessiondir.ReasonOf(err))
		return
	}
	f.Value, u.byFile[f], u.values = true, v, append(u.values, v)
	im.guard(u, v)
}

// useless reports a file that is kept as it is, because nothing can be taken from it.
func (im importer) useless(u *unit, f *sessiondir.File, line int, why string) {
	if im.mayKeep(u, f, why) {
		f.Problem(line, why+": kept as it is, nothing is taken from it")
	}
}

// read reads a file, and hashes it. One that is larger than what an event can hold is only
// hashed: then data is nil.
func (im importer) read(u *unit, f *sessiondir.File) (data []byte, err error) {
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

// fileReason says what is wrong with a file, without its path.
func fileReason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

package backup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
)

// Verified is what Verify found.
type Verified struct {
	Backups  int            // that can be read
	Objects  int            // contents that they name
	Bytes    int64          // of these
	Unused   int64          // bytes of contents that none names: of a backup that was ended, for one
	Findings []*DamageError // contents that are missing or damaged
	Unread   []Backup       // backups that cannot be read
}

// Verify reads all contents of a folder and compares them with their hashes.
func Verify(ctx context.Context, dir string, progress func(done, total int64)) (Verified, error) {
	list, err := List(dir)
	if err != nil {
		return Verified{}, err
	}
	var v Verified
	for _, b := range list {
		if b.Err != nil {
			v.Unread = append(v.Unread, b)
		} else {
			v.Backups++
		}
	}
	parts, needs := contents(dir, list)
	for _, p := range parts {
		v.Objects++
		v.Bytes += p.Size
	}
	var done int64
	buffer := make([]byte, 1<<20)
	for _, p := range parts {
		what, err := readPart(ctx, dir, p, io.Discard, buffer)
		if err != nil {
			return v, err
		}
		if what != "" {
			needs[p].What = what
			v.Findings = append(v.Findings, needs[p])
		}
		done += p.Size
		progress(done, v.Bytes)
	}
	v.Unused, err = unused(dir, list, func(string) error { return nil })
	return v, err
}

// contents lists what backups name, each once, and for each what needs it.
func contents(dir string, list []Backup) (parts []Part, needs map[Part]*DamageError) {
	needs = make(map[Part]*DamageError)
	for _, b := range list {
		for _, f := range b.Files {
			for _, p := range f.Parts {
				if needs[p] == nil {
					parts = append(parts, p)
					needs[p] = &DamageError{Object: object(dir, p.Sum), File: f.Name, Backup: b.Name}
				}
			}
		}
	}
	return parts, needs
}

// unused calls f for each content that no backup names, and returns how many bytes they
// have.
func unused(dir string, list []Backup, f func(path string) error) (total int64, err error) {
	parts, _ := contents(dir, list)
	named := make(map[string]bool, len(parts))
	for _, p := range parts {
		named[object(dir, p.Sum)] = true
	}
	err = filepath.WalkDir(filepath.Join(dir, objectsDir), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() || named[path] {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		total += info.Size()
		return f(path)
	})
	return total, err
}

package backup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
)

// Verified is the result of Verify.
type Verified struct {
	Backups  int            // readable ones
	Objects  int            // contents that they name
	Bytes    int64          // of these contents
	Unused   int64          // bytes of contents that no backup names, such as those of a killed process
	Findings []*DamageError // missing or damaged contents
	Unread   []Backup       // unreadable backups
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
	// Other processes may have made backups meanwhile, and removed older ones with contents that only those had.
	if list, err = List(dir); err != nil {
		return v, err
	}
	named := named(dir, list)
	v.Findings = slices.DeleteFunc(v.Findings, func(d *DamageError) bool { return !named[d.Object] })
	v.Unused, err = unused(dir, named, func(string) error { return nil })
	return v, err
}

// contents lists the contents that backups name, each once, with a backup and file that need it.
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

// named returns the objects that backups name.
func named(dir string, list []Backup) map[string]bool {
	parts, _ := contents(dir, list)
	named := make(map[string]bool, len(parts))
	for _, p := range parts {
		named[object(dir, p.Sum)] = true
	}
	return named
}

// unused calls f for each content that is not named, and returns how many bytes they have.
func unused(dir string, named map[string]bool, f func(path string) error) (total int64, err error) {
	err = filepath.WalkDir(filepath.Join(dir, objectsDir), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !named[path] {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				total += info.Size()
				err = f(path)
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // another process has removed it
			return nil
		}
		return err
	})
	return total, err
}

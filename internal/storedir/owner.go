package storedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/lockfile"
	"github.com/tallylog/tally/log"
)

const (
	OwnerFile    = "owner.json" // names the owner to other processes
	LockFile     = "lock"       // locked by the owner as long as it lives
	ownerVersion = 1            // of the format of OwnerFile
)

// Owner is the content of OwnerFile: the address and the credentials for other processes of this user.
type Owner struct {
	Version    int    `json:"version"`
	PID        int    `json:"pid"`
	URL        string `json:"url"`
	User       string `json:"user"`
	Token      string `json:"token"`
	Durability string `json:"durability"`
}

// NoOwnerError reports that no process serves the directory. The caller may start one.
type NoOwnerError struct {
	Dir string
	Err error // of the attempt; may be nil
}

func (e *NoOwnerError) Error() string {
	msg := fmt.Sprintf("embedded: attach %s: no process serves it", e.Dir)
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// OwnerOf returns the process id and the URL in the directory's owner file. A killed owner leaves its file behind. If
// there is no file, the pid is 0; if the file cannot be read, it is -1.
func OwnerOf(dir string) (pid int, url string) {
	o, err := ReadOwner(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return -1, ""
	}
	return o.PID, o.URL
}

// ReadOwner reads the owner's file. If a newer tally wrote the file, the error is a *NewerError.
func ReadOwner(dir string) (o Owner, err error) {
	text, err := os.ReadFile(filepath.Join(dir, OwnerFile))
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return Owner{}, fmt.Errorf("%s cannot be read: %v", OwnerFile, err)
	}
	switch {
	case o.Version > ownerVersion:
		return Owner{}, &NewerError{Dir: dir, File: OwnerFile, Version: o.Version, Known: ownerVersion}
	case o.Version < ownerVersion:
		return Owner{}, fmt.Errorf("%s has version %d, this program knows %d", OwnerFile, o.Version, ownerVersion)
	}
	return o, nil
}

// LiveOwner returns the owner if it holds the directory's lock. Without a living owner the error matches *NoOwnerError.
// Any process of this machine may listen at the address of a killed owner.
func LiveOwner(dir string) (Owner, error) {
	o, err := ReadOwner(dir)
	if err != nil {
		return o, err
	}
	f, err := lockfile.Take(filepath.Join(dir, LockFile))
	switch {
	case errors.Is(err, lockfile.ErrLocked):
		return o, nil
	case err == nil:
		err = errors.Join(&NoOwnerError{Dir: dir}, f.Close())
	}
	return o, err
}

// TakeLock takes the directory's lock. The lock lasts as long as the file is open, and the system releases it when the
// process dies. If another process holds the lock, the error is lockfile.ErrLocked.
func TakeLock(dir string) (*os.File, error) {
	f, err := lockfile.Take(filepath.Join(dir, LockFile))
	if err != nil && !errors.Is(err, lockfile.ErrLocked) {
		err = fmt.Errorf("embedded: start %s: %w: lock: %v", dir, log.ErrUnavailable, err)
	}
	return f, err
}

// WriteOwner replaces the owner's file as a whole, readable for this user alone. It sets the version of the format. The
// file has no checksum: clients in other languages read it, and wrong credentials do not connect.
func WriteOwner(dir string, o Owner) error {
	o.Version = ownerVersion
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(dir, OwnerFile), append(text, '\n'), 0o600, durable.NoSync)
}

// RemoveOwner removes the owner's file, if it exists.
func RemoveOwner(dir string) error {
	if err := os.Remove(filepath.Join(dir, OwnerFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

package perstack

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// FileSystem is where StoreRunSetting writes a file in addition to the log.
type FileSystem interface {
	Exists(path string) (bool, error)
	Mkdir(path string) error // creates missing parents; an existing folder is not an error
	ReadFile(path string) ([]byte, error)
	WriteFile(path string, data []byte) error
}

// osFiles is the operating system's file system. Its writes are atomic.
type osFiles struct{}

func (osFiles) Exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (osFiles) Mkdir(path string) error              { return os.MkdirAll(path, 0o700) }
func (osFiles) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }
func (osFiles) WriteFile(path string, b []byte) error {
	return durable.Replace(path, b, 0o600, durable.WithSync)
}

// FileOnly makes StoreRunSetting write only the file, not the log.
func FileOnly(files FileSystem) FileSystem { return fileOnly{files} }

type fileOnly struct{ FileSystem }

// storeFile writes the setting of a run as the original does: the first call writes it, later calls change only the
// time of the last change. As in the original, the file has the secrets in clear; the caller protects it.
func storeFile(s shape.Setting, files FileSystem, dir string, now time.Time) error {
	path := filepath.Join(dir, "run-setting.json")
	there, err := files.Exists(path)
	if err != nil {
		return err
	}
	if !there {
		if err := files.Mkdir(dir); err != nil {
			return err
		}
		return files.WriteFile(path, s.Raw)
	}
	old, err := files.ReadFile(path)
	if err != nil {
		return err
	}
	if _, err := shape.ParseSetting(old); err != nil {
		return err
	}
	touched, err := shape.SettingFile(old, shape.Touched(s.Run, now.UnixMilli()).TouchedAt)
	if err != nil {
		return err
	}
	return files.WriteFile(path, touched)
}

// storeSetting stores a setting in the log, in a file, or in both.
func storeSetting(ctx context.Context, st *tally.Store, raw events.Raw, files FileSystem, dirOf func(job, run string) string) error {
	s, err := shape.ParseSetting(raw)
	if err != nil {
		return err
	}
	_, alone := files.(fileOnly)
	if !alone {
		if _, err := handleOf(st, s.Job).SaveSettingRaw(ctx, raw); err != nil {
			return err
		}
	}
	if files == nil {
		return nil
	}
	if dirOf == nil {
		dirOf = DefaultGetRunDir
	}
	return storeFile(s, files, dirOf(s.Job, s.Run), st.Now())
}

package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/nats-io/nats-server/v2/server"
)

const markFile = "mark"

// mark is what the owner wrote down about the store, beside the server's files.
type mark struct {
	Version int      `json:"version"`
	Streams []string `json:"streams"` // which the store has
}

const markVersion = 1

// expectedStreams lists the streams that a directory says it has: by its mark, and
// by the server's own folders.
func expectedStreams(dir string) ([]string, error) {
	m, err := readMark(dir)
	if err != nil {
		return nil, err
	}
	folders, err := streamFolders(dir)
	if err != nil {
		return nil, err
	}
	expected := append(m.Streams, folders...)
	slices.Sort(expected)
	return slices.Compact(expected), nil
}

func readMark(dir string) (m mark, err error) {
	text, err := os.ReadFile(filepath.Join(dir, markFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%s: %v", markFile, err)
	}
	if m.Version != markVersion {
		return m, fmt.Errorf("%s has version %d, this program knows %d", markFile, m.Version, markVersion)
	}
	return m, nil
}

// recordStreams writes down which streams there are now.
func (s *Server) recordStreams() error {
	js, err := s.nats.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return err
	}
	m := mark{Version: markVersion}
	for _, account := range js.AccountDetails {
		for _, stream := range account.Streams {
			m.Streams = append(m.Streams, stream.Name)
		}
	}
	slices.Sort(m.Streams)
	if before, err := readMark(s.dir); err == nil && slices.Equal(before.Streams, m.Streams) {
		return nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(s.dir, markFile), append(text, '\n'))
}

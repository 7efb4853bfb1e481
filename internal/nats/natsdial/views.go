package natsdial

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/log"
)

// ViewsOf returns this machine's directory for the views of a server's log, without asking the server. [ViewsOfLog]
// wrote down which log the server at a URL has. If no store was opened there yet, the directory does not exist.
func ViewsOf(server string) (string, error) {
	dir, at, err := viewsAt(server)
	if err != nil {
		return "", err
	}
	name, err := os.ReadFile(at)
	if err != nil || !isHex(string(name)) {
		return strings.TrimSuffix(at, pointer), nil // never opened
	}
	return filepath.Join(dir, string(name)), nil
}

const pointer = ".log" // ends the name of a file that contains the name of a folder beside it

// viewsAt returns the folder of all views, and the file that names the views of a URL.
func viewsAt(server string) (dir, at string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", fmt.Errorf("embedded: open %s: %w", Redacted(server), err)
	}
	dir = filepath.Join(cache, "tally", "views")
	return dir, filepath.Join(dir, HashName(server)+pointer), nil
}

// HashName returns a short file name for a text.
func HashName(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

func isHex(name string) bool {
	_, err := hex.DecodeString(name)
	return err == nil && name != ""
}

// ViewsOfLog returns this machine's directory for the views of a server's log, and writes down that the log is at this
// URL. The log is identified by the name and the creation time of its first stream. So URLs with another order of hosts
// or another password share a directory.
func ViewsOfLog(ctx context.Context, nc *nats.Conn, server string) (string, error) {
	dir, at, err := viewsAt(server)
	if err != nil {
		return "", err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return "", err
	}
	s, err := js.Stream(ctx, log.FirstStream)
	if err != nil {
		return "", fmt.Errorf("embedded: open %s: %w: %v", Redacted(server), log.ErrUnavailable, err)
	}
	name := HashName(log.FirstStream + " " + s.CachedInfo().Created.UTC().Format(time.RFC3339Nano))
	if have, err := os.ReadFile(at); err == nil && string(have) == name {
		return filepath.Join(dir, name), nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("embedded: open %s: %w", Redacted(server), err)
	}
	err = durable.Replace(at, []byte(name), 0o600, durable.NoSync)
	return filepath.Join(dir, name), err
}

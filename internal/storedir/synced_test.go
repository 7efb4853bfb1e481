package storedir_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
)

// The files that no other file can replace are on disk when they are written, so that a power cut brings back no earlier
// content: such as a mark of a clean stop.
func TestSynced(t *testing.T) {
	lost := []log.Hole{{Offset: 7, Subject: "tally.x"}}
	for name, c := range map[string]struct {
		files []string
		write func(dir string) error
	}{
		"net D3 the mark":                 {[]string{"mark"}, func(dir string) error { return storedir.WriteMark(dir, storedir.Mark{Clean: true}) }},
		"net D1 the list of lost records": {[]string{"damaged/holes.json", "damaged/holes.copy.json"}, func(dir string) error { return storedir.AddHoles(dir, lost) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(storedir.DamagedDir(dir), 0o700); err != nil {
				t.Fatal(err)
			}
			var synced []string
			stop := durable.Watch(func(path string) { synced = append(synced, path) })
			err := c.write(dir)
			stop()
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range c.files {
				path := filepath.Join(dir, filepath.FromSlash(file))
				i := slices.IndexFunc(synced, func(name string) bool { return strings.HasPrefix(name, path) })
				if i < 0 || i+1 == len(synced) || filepath.Clean(synced[i+1]) != filepath.Dir(path) {
					t.Errorf("%s: synced were %v, want the file and then its folder", file, synced)
				}
			}
		})
	}
}

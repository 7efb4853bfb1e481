package config

import (
	"path/filepath"

	"github.com/tallylog/tally/internal/sealed"
)

// takeKeys records the path of the file of keys. It does not read the file. No configuration file can name it, so a
// file that comes with a project cannot choose the keys that seal secrets.
func (c *Config) takeKeys(dir string, getenv func(string) string) {
	path := getenv(sealed.Variable)
	if path == "" {
		return
	}
	if !filepath.IsAbs(path) && !sealed.IsKey(path) {
		path = filepath.Join(dir, path)
	}
	c.said["keys"], c.origins["keys"] = path, origin{name: sealed.Variable}
}

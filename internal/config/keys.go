package config

import (
	"path/filepath"

	"github.com/tallylog/tally/internal/sealed"
)

// takeKeys notes which file has the keys of secrets. It is not read here, and no file of
// settings can name it: so none that comes with a project decides what secrets are sealed with.
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

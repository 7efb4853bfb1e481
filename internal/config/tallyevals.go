package config

import (
	"fmt"
	"path/filepath"
)

// Variables of tally-evals. TALLY_STORAGE_PATH has the same meaning here: the folder that holds conversations/.
// TALLY_STORAGE_BACKEND chooses where tally-evals keeps that folder, which is not a setting of a log.
const (
	pathVariable    = "TALLY_STORAGE_PATH"
	backendVariable = "TALLY_STORAGE_BACKEND"
)

// baseName is the folder of tally-evals in a project.
const baseName = ".tally"

// foreignNames are the configuration files of tally-evals, in its order. They are programs, and tally does not run
// them.
var foreignNames = []string{"tally.config.ts", "tally.config.js", "tally.config.mjs", "tally.config.cjs"}

// original applies the settings of tally-evals for a working directory, and adds notices about those that have no
// effect here.
func (c *Config) original(dir string, getenv func(string) string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return &Error{File: dir, Reason: err.Error()}
	}
	c.Base, c.origins["base"] = filepath.Join(dir, baseName), origin{name: "default"}
	if c.Project != "" {
		c.Base = filepath.Join(c.Project, baseName)
	}
	if path := getenv(pathVariable); path != "" {
		c.origins["base"] = origin{name: pathVariable}
		if c.Base = path; !filepath.IsAbs(path) {
			c.Base = filepath.Join(dir, path)
		}
	}
	if path := foreign(dir); path != "" {
		c.Notices = append(c.Notices, Notice{
			Text: "a configuration of tally-evals is a program and is not run; settings of the store go into tally.toml",
			Path: path, Instead: filepath.Join(filepath.Dir(path), FileName),
		})
	}
	if backend := getenv(backendVariable); backend != "" && backend != Local {
		c.Notices = append(c.Notices, Notice{
			Text: fmt.Sprintf("%s=%s says where tally-evals keeps its files, which a [[tree]] of layout tallydir does here; the log's own backend is %s", backendVariable, backend, c.said["backend"]),
			Path: backendVariable, Instead: variable("backend").name,
		})
	}
	return nil
}

// Notice reports a setting that a user may expect to work but that has no effect.
type Notice struct {
	Text    string
	Path    string // file or variable
	Instead string // where to set it instead
}

// foreign returns the nearest configuration of tally-evals in a directory or above it. It returns "" if no
// file exists, or if a tally.toml is in the same folder or nearer.
func foreign(dir string) string {
	for dir := range upward(dir) {
		if isFile(filepath.Join(dir, FileName)) {
			return ""
		}
		for _, name := range foreignNames {
			if path := filepath.Join(dir, name); isFile(path) {
				return path
			}
		}
	}
	return ""
}

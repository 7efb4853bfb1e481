//go:build !linux

package main

import (
	"os"
	"runtime"
)

func syncData(f *os.File) error { return f.Sync() }

// syncAll does nothing on systems without this call.
func syncAll(string) error { return nil }

// fileSystem returns the name of the system: other systems have no portable call for the file system.
func fileSystem(string) string { return "file system of " + runtime.GOOS }

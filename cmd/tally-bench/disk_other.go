//go:build !linux

package main

import (
	"os"
	"runtime"
)

func syncData(f *os.File) error { return f.Sync() }

// syncAll does nothing where there is no such call.
func syncAll(string) error { return nil }

// fileSystem names the system: which file system it is, is not asked here.
func fileSystem(string) string { return "file system of " + runtime.GOOS }

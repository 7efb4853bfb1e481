//go:build !windows

package durable

import (
	"errors"
	"syscall"
)

// unsupported reports whether a file system does not sync directories.
func unsupported(err error) bool { return errors.Is(err, syscall.EINVAL) }

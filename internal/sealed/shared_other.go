//go:build !unix

package sealed

import "io/fs"

// shared says why a file is not this user's alone: here modes do not say that.
func shared(fs.FileInfo) string { return "" }

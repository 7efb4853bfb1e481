//go:build !unix

package sealed

import "io/fs"

// shared returns why a file is not private. On this system the mode of a file does not tell, so shared returns "".
func shared(fs.FileInfo) string { return "" }

package backup

import "os"

// stamp returns a zero stamp: files are read again, but unchanged contents are not written again.
func stamp(*os.File) (Stamp, error) { return Stamp{}, nil }

package backup

import "os"

// stamp returns none: files are read again, and what is the same is not written again.
func stamp(*os.File) (Stamp, error) { return Stamp{}, nil }

package embedded

import (
	"io/fs"
	"math"
	"path/filepath"
)

// spare is the room on disk that the log leaves, so that the server refuses an
// append before the system refuses a write: from a failed write it does not recover.
const spare = 64 << 20

// quota is how much the server may store: what it has and what is free. The
// server's own default, three quarters of what is free at the start, would refuse
// to serve a log larger than that.
func quota(dir string) int64 {
	free, err := freeBytes(dir)
	if err != nil || free > math.MaxInt64/4 {
		return math.MaxInt64 / 4
	}
	used := int64(0)
	filepath.WalkDir(filepath.Join(dir, "jetstream"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				used += info.Size()
			}
		}
		return nil
	})
	return max(used+int64(free)-spare, used+1)
}

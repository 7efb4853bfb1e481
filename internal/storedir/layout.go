package storedir

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/tallylog/tally/internal/nats/natsfile"
)

// SegmentsDir returns the folder for caches about full segments. A store that loses it loses no records.
func SegmentsDir(dir string) string { return filepath.Join(dir, "segments") }

// MetaCopy returns the path of the copy of a stream's description.
func MetaCopy(dir, stream string) string { return filepath.Join(SegmentsDir(dir), stream+".meta") }

// StreamFolders lists the streams in a store's directory, oldest first. Streams whose creation was cut off are left
// out.
func StreamFolders(dir string) ([]string, error) {
	names, err := natsfile.Folders(dir)
	slices.SortFunc(names, func(a, b string) int { return StreamNumber(a) - StreamNumber(b) })
	return names, err
}

// StreamNumber returns n for the log's stream TALLY_n, and 0 for other streams: the log's numbers begin at 1.
func StreamNumber(name string) (n int) {
	fmt.Sscanf(name, "TALLY_%d", &n)
	return n
}

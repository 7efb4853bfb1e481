package agents

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/tallylog/tally/events"
)

// Response returns the id of a response, by which costs of it are joined wherever the line
// comes again: the maker's, if it cannot be drawn twice. Another one is told apart by what
// the file says of the line alone, such as its id, which is the same in every copy. A
// response without an id has none.
func Response(id string, line ...string) string {
	if id == "" || events.IsUnique(id) && len(id) <= events.MaxResponse {
		return id
	}
	if strings.Join(line, "") == "" { // nothing tells it apart, so it joins nothing
		return id[:min(len(id), events.MaxResponse)]
	}
	hash := sha256.New()
	for _, part := range append([]string{id}, line...) {
		hash.Write([]byte(part))
		hash.Write([]byte{0})
	}
	const room = events.MaxResponse - 33
	return id[:min(len(id), room)] + "/" + hex.EncodeToString(hash.Sum(nil)[:16])
}

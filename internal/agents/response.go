package agents

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/tallylog/tally/events"
)

// Response returns the id of a response by which copies of its costs are joined: the maker's id, if that is globally
// unique. Otherwise the id is extended by a hash of line, values of the line alone such as its id, which are the same
// in every copy. If id is "", Response returns "".
func Response(id string, line ...string) string {
	if id == "" || events.IsUnique(id) && len(id) <= events.MaxResponse {
		return id
	}
	if strings.Join(line, "") == "" { // without other values nothing distinguishes the responses, so this id joins no costs
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

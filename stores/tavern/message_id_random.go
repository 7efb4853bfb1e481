//go:build tally_inbox_random

package tavern

import "crypto/rand"

// This file is in no product. The law of what is sent twice builds with it, to show that it
// would notice: each time that a message is sent it has another id.
func derivedID(_, _ string) string { return rand.Text() }

//go:build tally_tavern_apart

package tavern

import (
	"context"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/log"
)

// This file is in no product. The law of session and node file builds with it, to show that
// it would notice: one is appended behind the other.
func appendAgent(ctx context.Context, st *tally.Store, parts []log.Part) error {
	for _, p := range parts {
		if _, err := st.Append(ctx, p.Subject, p.Expect, p.Events...); err != nil {
			return err
		}
	}
	return nil
}

package tavern

import (
	"fmt"
	"strings"
)

// TransitionError reports that an object cannot move from its state to another. Nothing was written.
type TransitionError struct {
	What     string // such as "flow release", or "agent 8f14e45f-..."
	From, To string
	Allowed  []string // the states that may follow From
	Reason   string   // a missing condition, if To is allowed; or ""
}

func (e *TransitionError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("%s: %q does not lead to %q: %s", e.What, e.From, e.To, e.Reason)
	}
	where := "nowhere"
	if len(e.Allowed) > 0 {
		quoted := make([]string, len(e.Allowed))
		for i, to := range e.Allowed {
			quoted[i] = fmt.Sprintf("%q", to)
		}
		where = "to " + strings.Join(quoted, ", ")
	}
	return fmt.Sprintf("%s: %q does not lead to %q: it leads %s", e.What, e.From, e.To, where)
}

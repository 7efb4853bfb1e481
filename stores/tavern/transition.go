package tavern

import (
	"fmt"
	"strings"
)

// TransitionError says that something cannot come from the state that it is in to another.
// Nothing was written.
type TransitionError struct {
	What     string // such as "flow release"
	From, To string
	Allowed  []string // where it can go from there
}

func (e *TransitionError) Error() string {
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

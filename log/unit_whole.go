//go:build !tally_units_apart

package log

import "context"

// store stores the unit, and leaves the queues.
func (u *unit) store(ctx context.Context) ([]Ack, error) {
	if u.l.redoes(u.parts) {
		return u.redoable(ctx)
	}
	defer u.l.leaveAll(u.tickets)
	return u.put(ctx)
}

//go:build tally_units_apart

package log

import "context"

// store stores each part by itself: a build for tests, which are to notice.
func (u *unit) store(ctx context.Context) ([]Ack, error) {
	defer u.l.leaveAll(u.tickets)
	acks := make([]Ack, len(u.parts))
	for i, p := range u.parts {
		if len(p.msgs) == 0 {
			continue
		}
		ack, err := u.l.put(ctx, p)
		if err == nil {
			ack, err = u.l.settle(ctx, p, ack)
		}
		if err != nil {
			return nil, err
		}
		acks[i] = ack
	}
	return acks, nil
}

package embedded

import (
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// pendingLogins holds a limited number of connections that have not logged in, oldest first. When it is full and
// another client connects, it closes the oldest connection of the peer with the most connections. So a peer with many
// connections displaces its own. Each connection has at least minLogin to log in; until then the new client waits.
type pendingLogins struct {
	most int
	left chan struct{} // receives a token when a connection leaves

	mu      sync.Mutex // guards the fields below
	waiting []waitingLogin
	pushed  map[net.Conn]bool // closed to make room
}

type waitingLogin struct {
	net.Conn
	since time.Time
}

const minLogin = 100 * time.Millisecond

func newPendingLogins(most int) *pendingLogins {
	return &pendingLogins{most: most, left: make(chan struct{}, 1), pushed: make(map[net.Conn]bool)}
}

// enter adds a connection. It waits until there is room or done is closed.
func (l *pendingLogins) enter(c net.Conn, done <-chan struct{}) {
	for {
		wait := l.admit(c)
		if wait <= 0 {
			return
		}
		select {
		case <-time.After(wait):
		case <-l.left:
		case <-done:
			return
		}
	}
}

// admit adds a connection and returns 0, or returns the time until there may be room.
func (l *pendingLogins) admit(c net.Conn) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= l.most {
		at := l.crowding()
		out := l.waiting[at]
		if wait := minLogin - time.Since(out.since); wait > 0 {
			return wait
		}
		l.waiting = slices.Delete(l.waiting, at, at+1)
		l.pushed[out.Conn] = true
		out.Close()
	}
	l.waiting = append(l.waiting, waitingLogin{c, time.Now()})
	return 0
}

// crowding returns the index of the oldest connection of the peer with the most connections.
func (l *pendingLogins) crowding() (at int) {
	counts, first := make(map[string]int), make(map[string]int)
	for i, c := range l.waiting {
		p := peerOf(c.Conn)
		if counts[p]++; counts[p] == 1 {
			first[p] = i
		}
	}
	most := 0
	for p, n := range counts {
		if n > most || n == most && first[p] < at {
			most, at = n, first[p]
		}
	}
	return at
}

// leave removes a connection, and reports whether it was closed to make room.
func (l *pendingLogins) leave(c net.Conn) (pushed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pushed[c] {
		delete(l.pushed, c)
		return true
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(w waitingLogin) bool { return w.Conn == c })
	select {
	case l.left <- struct{}{}:
	default:
	}
	return false
}

// peerOf returns the peer's IPv4 address, or its IPv6 /64 network, as one machine may use 2^64 addresses there.
func peerOf(c net.Conn) string {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	if four := a.IP.To4(); four != nil {
		return four.String()
	}
	return a.IP.Mask(net.CIDRMask(64, 128)).String()
}

// rejections counts rejected connections by reason and logs the counts, at most once a minute. So unknown clients cannot
// flood the log.
type rejections struct {
	logger *slog.Logger
	dir    string

	mu    sync.Mutex // guards the fields below
	seen  map[string]int
	said  time.Time
	timer *time.Timer
	over  bool
}

const rejectionInterval = time.Minute

func newRejections(dir string, lg *slog.Logger) *rejections {
	return &rejections{logger: lg, dir: dir, seen: make(map[string]int)}
}

func (r *rejections) count(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[why]++
	if r.timer == nil && !r.over {
		r.timer = time.AfterFunc(max(time.Second, rejectionInterval-time.Since(r.said)), r.report)
	}
}

func (r *rejections) report() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reportLocked()
}

func (r *rejections) reportLocked() {
	if r.timer == nil {
		return
	}
	args := []any{"dir", r.dir}
	for _, why := range slices.Sorted(maps.Keys(r.seen)) {
		args = append(args, why, r.seen[why])
	}
	r.logger.Warn("connections were rejected", args...)
	r.seen, r.said, r.timer = make(map[string]int), time.Now(), nil
}

// close logs the remaining counts.
func (r *rejections) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.timer != nil {
		r.timer.Stop()
		r.reportLocked()
	}
	return nil
}

// bounds limit the connections of a proxy: within counts those that have logged in, before counts the others.
type bounds struct{ within, before int }

const (
	minReserved = 40     // an idle store has 25 descriptors
	maxReserved = 512    // descriptors for the log, its readers, views and trees
	maxOpen     = 16_384 // connections
)

// boundsOf divides a process's file descriptors among its proxies. Half of them, but between minReserved and maxReserved, are
// kept for the store itself.
func boundsOf(descriptors, proxies int) bounds {
	reserved := min(max(minReserved, descriptors/2), maxReserved)
	each := min(max(descriptors-reserved, 8), maxOpen) / proxies
	return bounds{within: each - each/3, before: each / 3}
}

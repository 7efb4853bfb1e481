package embedded

import (
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// lobby has the connections that have not logged in, the oldest first, up to a number. For
// one more, the oldest of the peer that has most of them is closed: a stranger with many
// pushes out its own. Until that one had atLeast to log in, the next waits for its turn.
type lobby struct {
	most int
	left chan struct{} // has a token when a connection has left

	mu      sync.Mutex // guards what follows
	waiting []waiting
	pushed  map[net.Conn]bool // closed to make room
}

type waiting struct {
	net.Conn
	since time.Time
}

const atLeast = 100 * time.Millisecond

func newLobby(most int) *lobby {
	return &lobby{most: most, left: make(chan struct{}, 1), pushed: make(map[net.Conn]bool)}
}

// enter waits until there is room for a connection, or done is closed.
func (l *lobby) enter(c net.Conn, done <-chan struct{}) {
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

// admit takes a connection in, or returns after which time there may be room.
func (l *lobby) admit(c net.Conn) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= l.most {
		at := l.crowding()
		out := l.waiting[at]
		if wait := atLeast - time.Since(out.since); wait > 0 {
			return wait
		}
		l.waiting = slices.Delete(l.waiting, at, at+1)
		l.pushed[out.Conn] = true
		out.Close()
	}
	l.waiting = append(l.waiting, waiting{c, time.Now()})
	return 0
}

// crowding returns the oldest connection of the peer that has most of them.
func (l *lobby) crowding() (at int) {
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

// leave takes a connection out, and reports whether it was closed to make room.
func (l *lobby) leave(c net.Conn) (pushed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pushed[c] {
		delete(l.pushed, c)
		return true
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(w waiting) bool { return w.Conn == c })
	select {
	case l.left <- struct{}{}:
	default:
	}
	return false
}

// peerOf names the machine at the other end, or its network: of IPv6 anybody has 2^64
// addresses.
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

// strays counts connections that did not come in, and says so once a minute at most: how
// many lines of a log strangers fill is not up to them.
type strays struct {
	logger *slog.Logger
	dir    string

	mu    sync.Mutex // guards what follows
	seen  map[string]int
	said  time.Time
	timer *time.Timer
	over  bool
}

const sayStrays = time.Minute

func newStrays(dir string, lg *slog.Logger) *strays {
	return &strays{logger: lg, dir: dir, seen: make(map[string]int)}
}

func (s *strays) count(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[why]++
	if s.timer == nil && !s.over {
		s.timer = time.AfterFunc(max(time.Second, sayStrays-time.Since(s.said)), s.tell)
	}
}

func (s *strays) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellLocked()
}

func (s *strays) tellLocked() {
	if s.timer == nil {
		return
	}
	args := []any{"dir", s.dir}
	for _, why := range slices.Sorted(maps.Keys(s.seen)) {
		args = append(args, why, s.seen[why])
	}
	s.logger.Warn("connections were not let in", args...)
	s.seen, s.said, s.timer = make(map[string]int), time.Now(), nil
}

// close says what was not said yet.
func (s *strays) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
		s.tellLocked()
	}
	return nil
}

// bounds say how many connections a door has.
type bounds struct{ within, before int } // that have logged in, and that have not

const (
	leastAside = 40     // descriptors of a store at rest are 25
	mostAside  = 512    // descriptors for the log, its readers, views and trees
	mostOpen   = 16_384 // connections
)

// boundsOf shares the descriptors that a process may have among its doors: as many as are
// used for connections, or leastAside, are left for the store itself.
func boundsOf(descriptors, doors int) bounds {
	aside := min(max(leastAside, descriptors/2), mostAside)
	each := min(max(descriptors-aside, 8), mostOpen) / doors
	return bounds{within: each - each/3, before: each / 3}
}

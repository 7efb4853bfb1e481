package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/tallylog/tally/internal/layouts"
)

// Config says where the files are kept.
type Config struct {
	URL    string // of the server and the database
	Prefix string // of all keys; default: "tally:"
}

// maxSize is the size in bytes of the largest object that a server accepts with its default settings.
const maxSize = 512 << 20

// idleConns is the maximal number of idle connections.
const idleConns = 8

// Storage keeps files in a Redis server. Its methods are safe for concurrent use.
type Storage struct {
	o    Config
	idle chan *Conn
}

var (
	_ layouts.Swapper = (*Storage)(nil)
	_ layouts.Watcher = (*Storage)(nil)
	_ layouts.Walker  = (*Storage)(nil)
)

// Open connects to a server.
func Open(ctx context.Context, o Config) (*Storage, error) {
	o.Prefix = cmp.Or(o.Prefix, "tally:")
	s := &Storage{o: o, idle: make(chan *Conn, idleConns)}
	if _, err := s.do(ctx, "PING"); err != nil {
		return nil, fmt.Errorf("layouts/redis: %w", err)
	}
	return s, nil
}

// Close closes the connections. The caller ends all operations before.
func (s *Storage) Close() error {
	var errs []error
	for {
		select {
		case c := <-s.idle:
			errs = append(errs, c.Close())
		default:
			return errors.Join(errs...)
		}
	}
}

// with calls a function with a connection. It does not repeat a failed call, which the server may have carried out.
func (s *Storage) with(ctx context.Context, call func(c *Conn) (any, error)) (reply any, err error) {
	c, err := s.conn(ctx)
	if err != nil {
		return nil, err
	}
	reply, err = c.until(ctx, func() (any, error) { return call(c) })
	if c.Err() != nil || ctx.Err() != nil {
		s.drop(c) // the other connections may be broken too, for example after a restart of the server
		return reply, err
	}
	select {
	case s.idle <- c:
	default:
		_ = c.Close()
	}
	return reply, err
}

// drop closes a connection that failed, and the idle ones.
func (s *Storage) drop(c *Conn) {
	_ = c.Close() // the caller reports why it failed
	_ = s.Close()
}

func (s *Storage) conn(ctx context.Context) (*Conn, error) {
	select {
	case c := <-s.idle:
		return c, nil
	default:
		return Dial(ctx, s.o.URL)
	}
}

func (s *Storage) do(ctx context.Context, command string, args ...any) (any, error) {
	return s.with(ctx, func(c *Conn) (any, error) { return c.Conn.Do(command, args...) })
}

func (s *Storage) run(ctx context.Context, script *redis.Script, args ...any) (any, error) {
	return s.with(ctx, func(c *Conn) (any, error) { return script.Do(c.Conn, args...) })
}

// key returns the key of a path.
func (s *Storage) key(name string) (string, error) {
	if err := layouts.CheckPath(name); err != nil {
		return "", err
	}
	return s.o.Prefix + keyOf(name), nil
}

// Answers of scripts that changed nothing.
const (
	isNone  = "none"
	isOther = "other"
)

// answered returns the error for the answer of a script that changed nothing.
func answered(op, name string, reply any, err error) error {
	switch {
	case err != nil:
		err = fmt.Errorf("layouts/redis: %w", err)
	case reply == isNone:
		err = fs.ErrNotExist
	case reply == isOther:
		err = layouts.ErrNotFile
	default:
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Every script begins with preamble: kind returns the type of a key, and load reads a file.
const preamble = `
local function kind(key) return redis.call('TYPE', key).ok end
local function load(key)
	local text, mode, id = nil, '', ''
	for _, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do
		id = entry[1]
		for i = 1, #entry[2], 2 do
			if entry[2][i] == 'content' then
				text = text and text .. '\n' .. entry[2][i+1] or entry[2][i+1]
			elseif entry[2][i] == 'mode' then
				mode = entry[2][i+1]
			end
		end
	end
	return text or '', mode, id
end
local function store(key, id, text, mode)
	redis.call('DEL', key)
	if mode == '' then
		redis.call('XADD', key, id, 'content', text)
	else
		redis.call('XADD', key, id, 'content', text, 'mode', mode)
	end
end
`

func newScript(keys int, text string) *redis.Script { return redis.NewScript(keys, preamble+text) }

var (
	// KEYS: file, name for the displaced one; ARGV: id, content, mode, whether to displace
	putScript = newScript(2, `
		local is = kind(KEYS[1])
		if is ~= 'stream' and is ~= 'none' then return 'other' end
		if ARGV[4] == '1' and is == 'stream' then redis.call('RENAME', KEYS[1], KEYS[2]) end
		store(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
		return is`)
	// KEYS: file; ARGV: id, content
	appendScript = newScript(1, `
		local is = kind(KEYS[1])
		if is ~= 'stream' and is ~= 'none' then return 'other' end
		local text, mode = load(KEYS[1])
		store(KEYS[1], ARGV[1], text .. ARGV[2], mode)
		return is`)
	// KEYS: file; returns its content
	readScript = newScript(1, `
		local is = kind(KEYS[1])
		if is == 'none' then return {'none'} end
		if is ~= 'stream' then return {'other'} end
		return {'file', (load(KEYS[1]))}`)
	// KEYS: files; returns kind, length, mode and id of each
	statScript = newScript(-1, `
		local all = {}
		for _, key in ipairs(KEYS) do
			local is = kind(key)
			if is == 'stream' then
				local text, mode, id = load(key)
				all[#all+1] = {is, #text, mode, id}
			else
				all[#all+1] = {is, 0, '', ''}
			end
		end
		return all`)
	// KEYS: file, its new name, which must be unused
	moveScript = newScript(2, `
		local is = kind(KEYS[1])
		if is == 'none' then return is end
		if is ~= 'stream' then return 'other' end
		if kind(KEYS[2]) ~= 'none' then return 'exists' end
		redis.call('RENAME', KEYS[1], KEYS[2])
		return is`)
)

// newID returns an id for an entry: the time and a random number, so that each content has its own id.
func newID() string { return fmt.Sprintf("%d-%d", time.Now().UnixMilli(), rand.Uint64()>>1) }

// Read implements Storage.
func (s *Storage) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	key, err := s.key(name)
	if err != nil {
		return nil, err
	}
	reply, err := s.run(ctx, readScript, key)
	answer, _ := reply.([]any)
	if err == nil && (len(answer) == 0 || answer[0] == "file" && len(answer) != 2) {
		err = fmt.Errorf("unexpected answer of the server: %v", reply)
	}
	if err != nil || answer[0] != "file" {
		answer = append(answer, nil)
		return nil, answered("read", name, answer[0], err)
	}
	return io.NopCloser(strings.NewReader(answer[1].(string))), nil
}

// Write implements Storage.
func (s *Storage) Write(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) error {
	_, err := s.put(ctx, "write", name, mode, content, false)
	return err
}

// Swap implements layouts.Swapper.
func (s *Storage) Swap(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) (displaced string, err error) {
	return s.put(ctx, "swap", name, mode, content, true)
}

func (s *Storage) put(ctx context.Context, op, name string, mode fs.FileMode, content func(io.Writer) error, swap bool) (displaced string, err error) {
	key, err := s.key(name)
	if err != nil {
		return "", err
	}
	b := &limited{limit: maxSize}
	if err := cmp.Or(content(b), ctx.Err()); err != nil {
		return "", err
	}
	bits := ""
	if mode.Perm() != layouts.FileMode(0) {
		bits = strconv.FormatUint(uint64(mode.Perm()), 8)
	}
	displaced = layouts.TemporaryName(name)
	reply, err := s.run(ctx, putScript, key, s.o.Prefix+keyOf(displaced), newID(), b.content, bits, swap)
	if err == nil && reply == isNone { // the file is new
		return "", nil
	}
	if err := answered(op, name, reply, err); err != nil || !swap {
		return "", err
	}
	return displaced, nil
}

// limited is a buffer for an object. It has only the method Write, because io.Copy would call other methods of a
// bytes.Buffer and bypass the limit.
type limited struct {
	limit   int // bytes
	content []byte
}

func (b *limited) Write(p []byte) (int, error) {
	if len(b.content)+len(p) > b.limit {
		return 0, fmt.Errorf("layouts/redis: an object has at most %d bytes", b.limit)
	}
	b.content = append(b.content, p...)
	return len(p), nil
}

// Append implements Storage.
func (s *Storage) Append(ctx context.Context, name string, content []byte) error {
	key, err := s.key(name)
	if err != nil {
		return err
	}
	reply, err := s.run(ctx, appendScript, key, newID(), content)
	if err == nil && reply == isNone {
		return nil
	}
	return answered("append", name, reply, err)
}

// Stat implements Storage.
func (s *Storage) Stat(ctx context.Context, name string) (layouts.FileInfo, error) {
	key, err := s.key(name)
	if err != nil {
		return layouts.FileInfo{}, err
	}
	entries, err := s.stat(ctx, key)
	if err != nil {
		return layouts.FileInfo{}, answered("stat", name, nil, err)
	}
	if entries[0] == nil {
		return layouts.FileInfo{}, answered("stat", name, isNone, nil)
	}
	e := *entries[0]
	e.Name = name[strings.LastIndexByte(name, '/')+1:]
	return e, nil
}

// stat describes the files of keys, without names: nil for a missing key.
func (s *Storage) stat(ctx context.Context, keys ...string) ([]*layouts.FileInfo, error) {
	args := []any{len(keys)}
	for _, key := range keys {
		args = append(args, key)
	}
	reply, err := s.run(ctx, statScript, args...)
	if err != nil {
		return nil, err
	}
	answer, _ := reply.([]any)
	if len(answer) != len(keys) {
		return nil, fmt.Errorf("unexpected answer of the server: %v", reply)
	}
	entries := make([]*layouts.FileInfo, len(keys))
	for i, of := range answer {
		var is, mode, id string
		var size int64
		row, _ := of.([]any)
		if _, err := redis.Scan(row, &is, &size, &mode, &id); err != nil {
			return nil, err
		}
		switch is {
		case isNone:
		case "stream":
			entries[i] = entryOf(size, mode, id)
		default:
			entries[i] = &layouts.FileInfo{Size: -1}
		}
	}
	return entries, nil
}

func entryOf(size int64, mode, id string) *layouts.FileInfo {
	e := &layouts.FileInfo{Size: size, Mode: layouts.FileMode(0), Version: id}
	if bits, err := strconv.ParseUint(mode, 8, 32); err == nil {
		e.Mode = fs.FileMode(bits) & fs.ModePerm
	}
	millis, _, _ := strings.Cut(id, "-")
	if ms, err := strconv.ParseInt(millis, 10, 64); err == nil {
		e.ModTime = time.UnixMilli(ms)
	}
	return e
}

// Delete implements Storage.
func (s *Storage) Delete(ctx context.Context, name string) error {
	key, err := s.key(name)
	if err != nil {
		return err
	}
	reply, err := s.do(ctx, "DEL", key)
	if err == nil && reply == int64(0) {
		reply = isNone
	}
	return answered("delete", name, reply, err)
}

// Displace implements layouts.Swapper.
func (s *Storage) Displace(ctx context.Context, name string) (displaced string, err error) {
	key, err := s.key(name)
	if err != nil {
		return "", err
	}
	displaced = layouts.TemporaryName(name)
	reply, err := s.run(ctx, moveScript, key, s.o.Prefix+keyOf(displaced))
	if err := answered("displace", name, reply, err); err != nil {
		return "", err
	}
	return displaced, nil
}

// Restore implements layouts.Swapper.
func (s *Storage) Restore(ctx context.Context, displaced, name string) error {
	from, err := s.key(displaced)
	if err != nil {
		return err
	}
	to, err := s.key(name)
	if err != nil {
		return err
	}
	reply, err := s.run(ctx, moveScript, from, to)
	if err == nil && reply == "exists" {
		return &fs.PathError{Op: "restore", Path: name, Err: fs.ErrExist}
	}
	return answered("restore", displaced, reply, err)
}

// pageOf is the number of keys that one SCAN examines.
const pageOf = 1000

// keys yields the keys below a folder, each once, a page at a time.
func (s *Storage) keys(ctx context.Context, folder string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		match, had := s.o.Prefix, make(map[string]bool)
		if folder != "" {
			match += keyOf(folder) + ":"
		}
		for cursor := "0"; ; {
			reply, err := s.do(ctx, "SCAN", cursor, "MATCH", globbed.Replace(match)+"*", "COUNT", pageOf)
			var page []string
			if err == nil {
				answer, _ := reply.([]any)
				_, err = redis.Scan(answer, &cursor, &page)
			}
			if err != nil {
				yield(nil, answered("list", folder, nil, err))
				return
			}
			page = slices.DeleteFunc(page, func(key string) bool { // a key may come twice
				again := had[key]
				had[key] = true
				return again
			})
			if len(page) > 0 && !yield(page, nil) || cursor == "0" {
				return
			}
		}
	}
}

// found returns the file that a key stands for.
func (s *Storage) found(key string) layouts.Found { return found(strings.TrimPrefix(key, s.o.Prefix)) }

// List implements Storage.
func (s *Storage) List(ctx context.Context, folder string) ([]layouts.FileInfo, error) {
	if folder != "" {
		if err := layouts.CheckPath(folder); err != nil {
			return nil, err
		}
	}
	list, err := layouts.ListFound(folder, func(yield func(layouts.Found, error) bool) {
		for page, err := range s.keys(ctx, folder) {
			if err != nil {
				yield(layouts.Found{}, err)
				return
			}
			for _, key := range page {
				if !yield(s.found(key), nil) {
					return
				}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	var keys []string // of files
	for _, e := range list {
		if !e.Dir && e.Size == 0 {
			keys = append(keys, s.o.Prefix+keyOf(strings.TrimPrefix(folder+"/"+e.Name, "/")))
		}
	}
	stats := make([]*layouts.FileInfo, 0, len(keys))
	for page := range slices.Chunk(keys, pageOf) {
		entries, err := s.stat(ctx, page...)
		if err != nil {
			return nil, answered("list", folder, nil, err)
		}
		stats = append(stats, entries...)
	}
	whole := list[:0]
	for _, e := range list {
		if !e.Dir && e.Size == 0 {
			stat := stats[0]
			if stats = stats[1:]; stat == nil {
				continue // it is deleted by now
			}
			stat.Name = e.Name
			e = *stat
		}
		whole = append(whole, e)
	}
	return whole, nil
}

// Walk implements layouts.Walker.
func (s *Storage) Walk(ctx context.Context, folder string) iter.Seq2[layouts.Found, error] {
	return func(yield func(layouts.Found, error) bool) {
		if folder != "" {
			if err := layouts.CheckPath(folder); err != nil {
				yield(layouts.Found{}, err)
				return
			}
		}
		for page, err := range s.keys(ctx, folder) {
			var entries []*layouts.FileInfo
			if err == nil {
				entries, err = s.stat(ctx, page...)
			}
			if err != nil {
				yield(layouts.Found{}, answered("walk", folder, nil, err))
				return
			}
			for i, key := range page {
				f := s.found(key)
				if entries[i] == nil {
					continue // it is deleted by now
				}
				if f.Size == 0 {
					entries[i].Name = f.Name
					f.FileInfo = *entries[i]
				}
				if !yield(f, nil) {
					return
				}
			}
		}
	}
}

// NotifyError reports that a server sends no keyspace notifications.
type NotifyError struct{ Have string } // its setting notify-keyspace-events

func (e *NotifyError) Error() string {
	return fmt.Sprintf("layouts/redis: the server does not report changes: notify-keyspace-events is %q, want K with A, or K with g and t", e.Have)
}

func (e *NotifyError) Unwrap() error { return errors.ErrUnsupported }

// Watch implements layouts.Watcher. It returns an error if the server sends no notifications, or does not answer
// whether it does. It also returns an error when the connection ends, because later changes are not reported.
func (s *Storage) Watch(ctx context.Context, ready func(), changed func(path string)) error {
	if err := s.tells(ctx); err != nil {
		return err
	}
	c, err := Dial(ctx, s.o.URL)
	if err != nil {
		return fmt.Errorf("layouts/redis: watch: %w", err)
	}
	defer c.Close()
	_, err = c.until(ctx, func() (any, error) { return nil, s.listen(c, ready, changed) })
	return err
}

// tells checks that the server sends keyspace notifications.
func (s *Storage) tells(ctx context.Context) error {
	reply, err := s.do(ctx, "CONFIG", "GET", "notify-keyspace-events")
	if err != nil {
		return fmt.Errorf("layouts/redis: watch: read notify-keyspace-events: %w", err)
	}
	answer, _ := reply.([]any)
	have := ""
	if len(answer) == 2 {
		have = fmt.Sprint(answer[1])
	}
	if !strings.Contains(have, "K") || !strings.Contains(have, "A") && (!strings.Contains(have, "g") || !strings.Contains(have, "t")) {
		return &NotifyError{have}
	}
	return nil
}

func (s *Storage) listen(c *Conn, ready func(), changed func(path string)) error {
	sub := redis.PubSubConn{Conn: c.Conn}
	if err := sub.PSubscribe("__keyspace@*__:" + globbed.Replace(s.o.Prefix) + "*"); err != nil {
		return fmt.Errorf("layouts/redis: watch: %w", err)
	}
	for {
		switch m := sub.Receive().(type) {
		case redis.Subscription:
			if ready != nil {
				ready()
			}
		case redis.Message: // of any database, so a change may be reported too often
			_, key, _ := strings.Cut(m.Channel, "__:")
			if f := s.found(key); f.Size == 0 && !layouts.IsTemporary(f.Path) {
				changed(f.Path)
			}
		case error:
			return fmt.Errorf("layouts/redis: watch: %w", m)
		}
	}
}

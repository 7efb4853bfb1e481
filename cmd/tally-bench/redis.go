package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tallylog/tally/internal/layouts/redis"
)

// Names of the measurements of a Redis server, by the way it syncs its file.
const (
	whatStreams      = "Redis stream, appendfsync "
	whatLists        = "Redis list, appendfsync "
	redisAlways      = "always"
	redisEverySecond = "everysec"
)

// redisLives are the ways to keep a queue in a Redis server, in keys that begin with a name.
var redisLives = map[string]func(ctx context.Context, conns []*redis.Conn, key string) (itemLife, error){
	whatStreams: streamLife, whatLists: listLife,
}

// redisItems measures a Redis server with a sync setting, and a connection for each worker. It restores the server's
// settings and removes the keys.
func redisItems(ctx context.Context, url, sync string, workers int, d time.Duration, life func(context.Context, []*redis.Conn, string) (itemLife, error)) (m measured, err error) {
	var conns []*redis.Conn
	defer func() {
		for _, c := range conns {
			c.Close() // no command is under way
		}
	}()
	for range workers + 1 {
		c, err := redis.Dial(ctx, url)
		if err != nil {
			return m, err
		}
		conns = append(conns, c)
	}
	admin, quick := conns[workers], context.WithoutCancel(ctx) // the settings are restored also after an interruption
	restore, err := persist(quick, admin, sync)
	defer func() { err = errors.Join(err, restore()) }()
	if err == nil {
		err = written(ctx, admin)
	}
	if err != nil {
		return m, err
	}
	key := fmt.Sprintf("tally_bench:%d", time.Now().UnixNano())
	defer func() {
		_, gone := admin.Do(quick, "DEL", key, key+":claimed")
		err = errors.Join(err, gone)
	}()
	l, err := life(ctx, conns[:workers], key)
	if err != nil {
		return m, err
	}
	return lives(ctx, workers, d, l)
}

// persist makes a server write its data to a file and sync it. restore restores the settings and is never nil.
func persist(ctx context.Context, c *redis.Conn, sync string) (restore func() error, err error) {
	var undo [][]any
	restore = func() error {
		var errs []error
		for n := len(undo) - 1; n >= 0; n-- {
			_, err := c.Do(ctx, undo[n]...)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	for _, want := range [][2]string{{"appendonly", "yes"}, {"appendfsync", sync}} {
		reply, err := c.Do(ctx, "CONFIG", "GET", want[0])
		if err != nil {
			return restore, err
		}
		pair, ok := reply.([]any)
		if !ok || len(pair) != 2 {
			return restore, fmt.Errorf("the server does not report its %s", want[0])
		}
		if pair[1] == want[1] {
			continue
		}
		if _, err := c.Do(ctx, "CONFIG", "SET", want[0], want[1]); err != nil {
			return restore, fmt.Errorf("set %s: %w", want[0], err)
		}
		undo = append(undo, []any{"CONFIG", "SET", want[0], fmt.Sprint(pair[1])})
	}
	return restore, nil
}

// written waits until a server has rewritten its file, which it does when it starts to use one.
func written(ctx context.Context, c *redis.Conn) error {
	for {
		reply, err := c.Do(context.WithoutCancel(ctx), "INFO", "persistence")
		if err != nil {
			return err
		}
		info := strings.Fields(fmt.Sprint(reply))
		if slices.Contains(info, "aof_enabled:1") && slices.Contains(info, "aof_rewrite_in_progress:0") && slices.Contains(info, "aof_rewrite_scheduled:0") {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// streamLife keeps items in a stream with a consumer group.
func streamLife(ctx context.Context, conns []*redis.Conn, key string) (itemLife, error) {
	const group = "workers"
	if _, err := conns[0].Do(ctx, "XGROUP", "CREATE", key, group, "0", "MKSTREAM"); err != nil {
		return itemLife{}, err
	}
	claims, body := make([]string, len(conns)), string(turnBytes)
	return itemLife{
		enqueue: func(ctx context.Context, w int) error {
			_, err := conns[w].Do(ctx, "XADD", key, "*", "body", body)
			return err
		},
		claim: func(ctx context.Context, w int) error {
			reply, err := conns[w].Do(ctx, "XREADGROUP", "GROUP", group, strconv.Itoa(w), "COUNT", "1", "BLOCK", "0", "STREAMS", key, ">")
			if err != nil {
				return err
			}
			claims[w], err = firstEntry(reply)
			return err
		},
		finish: func(ctx context.Context, w int) error {
			return wantOne(conns[w].Do(ctx, "XACK", key, group, claims[w]))
		},
	}, nil
}

// firstEntry returns the id of the first entry of the first stream in an answer.
func firstEntry(reply any) (id string, err error) {
	at := reply
	for _, n := range []int{0, 1, 0, 0} { // the first stream, its entries, the first entry, its id
		list, _ := at.([]any)
		if len(list) <= n {
			return "", fmt.Errorf("the server read %v", reply)
		}
		at = list[n]
	}
	return fmt.Sprint(at), nil
}

// listLife keeps items in a list, and claimed items in a second one.
func listLife(_ context.Context, conns []*redis.Conn, key string) (itemLife, error) {
	claims, claimed := make([]string, len(conns)), key+":claimed"
	var made atomic.Int64
	return itemLife{
		enqueue: func(ctx context.Context, w int) error {
			_, err := conns[w].Do(ctx, "LPUSH", key, fmt.Sprintf("%0*d", benchTurn, made.Add(1))) // each item is different
			return err
		},
		claim: func(ctx context.Context, w int) error {
			reply, err := conns[w].Do(ctx, "BLMOVE", key, claimed, "RIGHT", "LEFT", "0")
			if err != nil {
				return err
			}
			var ok bool
			if claims[w], ok = reply.(string); !ok {
				return fmt.Errorf("the server moved %v", reply)
			}
			return nil
		},
		finish: func(ctx context.Context, w int) error {
			return wantOne(conns[w].Do(ctx, "LREM", claimed, "1", claims[w]))
		},
	}, nil
}

// wantOne fails unless an answer is 1: the item was still claimed.
func wantOne(reply any, err error) error {
	if err == nil && reply != int64(1) {
		err = fmt.Errorf("%v items were finished", reply)
	}
	return err
}

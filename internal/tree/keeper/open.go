package keeper

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/layouts/bucket"
	"github.com/tallylog/tally/internal/layouts/redis"
	"github.com/tallylog/tally/internal/layouts/s2"
	"github.com/tallylog/tally/internal/nats/natsdial"
	"github.com/tallylog/tally/internal/tree"
	"github.com/tallylog/tally/projector"
)

// open claims the tree's folder and opens the tree.
func (ts *Trees) open(ctx context.Context, st *tally.Store, k *keptTree) error {
	if err := makeFolder(ts.dir); err != nil {
		return err
	}
	if err := k.claim(config.StateFolder(os.Getenv), ts.store); err != nil {
		return err
	}
	layout, err := ts.layoutOf(k.Tree)
	if err != nil {
		return err
	}
	storage, end, err := openStorage(ctx, k.Tree)
	if err != nil {
		return err
	}
	k.ends = append(k.ends, end)
	of, err := st.Unshown().In(k.Namespace)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(k.Location()))
	root := layouts.Root{Name: layouts.LiveRoot, Marker: hex.EncodeToString(sum[:8])}
	if r, one := layout.(layouts.Rooted); one {
		root.Name = r.Root()
	}
	c := tree.Config{Name: k.Name, Layout: layout, Root: root, Storage: storage, Target: of, Head: st.Log.Durable,
		Part: strings.Join(append(slices.Clone(k.Kinds), "layer="+k.Layer, "imported"), " "), Way: tree.Way(k.Way), BulkLimit: k.BulkLimit, Ignore: k.Ignore, MaxFile: k.MaxFile, Logger: ts.Logger}
	if ts.dir != "" {
		c.Manifest = filepath.Join(ts.dir, k.FileName()+".db")
	}
	t, err := tree.New(c)
	if err != nil {
		return err
	}
	k.tree, k.ends = t, append(k.ends, t.Close)
	k.runner = &projector.Runner{Log: st.Log, View: t, Room: t.Room, Costly: !k.Sync, Logger: ts.Logger, MaxValue: st.MaxValue()}
	return nil
}

// openStorage opens the storage for a tree's files. The caller calls the returned function to close it.
func openStorage(ctx context.Context, t config.Tree) (layouts.Storage, func() error, error) {
	switch t.Target {
	case config.TreeDir:
		d, err := layouts.OpenDir(t.Dir)
		if err != nil {
			return nil, nil, err
		}
		d.Durable = t.Sync // in mode sync, acknowledged events are in the files even after a power cut
		return d, d.Close, nil
	case config.TreeRedis:
		r, err := redis.Open(ctx, redis.Config{URL: t.Redis.URL, Prefix: t.Redis.Prefix})
		if err != nil {
			return nil, nil, err
		}
		return r, r.Close, nil
	case config.TreeBucket:
		nc, err := natsdial.Connect(config.Server{URL: t.Bucket.URL}, "tally tree")
		if err != nil {
			return nil, nil, err
		}
		b, err := openBucket(ctx, nc, t.Bucket.Name)
		if err != nil {
			nc.Close()
			return nil, nil, err
		}
		return b, func() error { nc.Close(); return nil }, nil
	}
	return s2.New(s2.Config{Basin: t.S2.Name, Token: t.S2.Token, Prefix: t.S2.Prefix, Endpoint: t.S2.URL}), func() error { return nil }, nil
}

func openBucket(ctx context.Context, nc *nats.Conn, name string) (layouts.Storage, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return bucket.Open(ctx, js, name)
}

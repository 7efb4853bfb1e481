package tally_test

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// writes are the functions that make, replace or remove files at any path of the system,
// wherever links on the way lead.
var writes = map[string]string{
	"os":      "WriteFile OpenFile Create CreateTemp MkdirTemp Mkdir MkdirAll Rename Symlink Link Remove RemoveAll Truncate CopyFS",
	"durable": "Replace Stage Erase",
}

// writers are the files that may call them, each with the source of its paths. If an event, an id, another program's
// file or a name in a folder determines a path, the file must be written through os.Root or a storage instead.
var writers = []struct{ file, why string }{
	{"cmd/internal/admin/doctor.go", "temporary files in tally's own folders, listed there"},
	{"cmd/internal/admin/init.go", "tally.toml and .tavern in the current folder"},
	{"cmd/internal/admin/token.go", "the file of tokens, which the user names"},
	{"internal/web/tokens.go", "the token of a store, in its own directory"},
	{"cmd/internal/record/anchor.go", "cursors in the folder of states, named by tally"},
	{"cmd/internal/record/execspool.go", "recordings in the folder of states, named by tally"},
	{"cmd/internal/record/kick_unix.go", "sockets in the folder of states, named by process"},
	{"cmd/internal/record/setup.go", "an agent's settings, at the place that its vendor documents"},
	{"cmd/internal/record/state.go", "the folder of states"},
	{"cmd/internal/edit/forget.go", "a plan, in the file that the user names"},
	{"cmd/internal/edit/forkagents.go", "the folder of an agent's sessions itself; what is in it goes through os.Root"},
	{"cmd/tally-bench/*.go", "scratch folders of benchmarks"},
	{"embedded/blocksync*.go", "blocks of the store, by number"},
	{"embedded/damage.go", "copies of damaged blocks, by stream and number"},
	{"internal/nats/natsdial/views.go", "the folder for the views of a server; names are hashes"},
	{"internal/daemon/runner/run.go", "reports in the store's own folder, named by process"},
	{"embedded/erase.go", "temporary copies of blocks, listed in the store"},
	{"embedded/eraserequest.go", "a plan in the store's own folder; a receipt's id has no separators"},
	{"embedded/layout.go", "a scratch folder"},
	{"embedded/mark.go", "the store's watermark"},
	{"embedded/mend.go", "blocks of the store, by number"},
	{"embedded/open.go", "a scratch folder"},
	{"internal/erasure/journal.go", "the plan in the store's own folder"},
	{"internal/storedir/copied.go", "the marks of a copy in the store's own folder"},
	{"internal/storedir/owner.go", "the owner's file"},
	{"internal/storedir/private.go", "the store's own folder"},
	{"embedded/readonly.go", "a scratch folder, filled with the names that stand in the store"},
	{"embedded/streams.go", "the store's streams, listed there"},
	{"embedded/takeover.go", "the store's own folder"},
	{"internal/tree/keeper/claim.go", "the folder of states; the name is a hash"},
	{"internal/tree/keeper/status.go", "the folder of a store for its trees; the name is made by config"},
	{"internal/layouts/dir.go", "the folder itself; what is in it is opened from there, without following links"},
	{"internal/disk/backup/folder.go", "the folder of backups, which the user names"},
	{"internal/disk/backup/keep.go", "backups that were listed there"},
	{"internal/disk/backup/restore.go", "the restored store itself; what is in it goes through os.Root"},
	{"internal/disk/backup/take.go", "objects, by the hash of their content, and backups, by time"},
	{"internal/config/route.go", "settings are opened for reading"},
	{"internal/disk/durable/*.go", "replaces or erases a file for the callers that this table names"},
	{"internal/testkit/gentree/*.go", "made-up conversations, in a folder that the test names"},
	{"internal/disk/lockfile/lockfile.go", "locks, for callers that name them"},
	{"internal/nats/natsfile/rewrite.go", "blocks of the store, by number"},
	{"internal/nats/segindex/segindex.go", "an index of the store, by number"},
	{"internal/disk/statefile/statefile.go", "small files of tally's own, for callers that name them"},
	{"internal/testkit/storetest/*.go", "for tests"},
	{"internal/ingest/tail/state.go", "how far files were read, in the folder of states"},
	{"internal/ingest/tail/tail.go", "the folder of states"},
	{"internal/testkit/*.go", "for tests"},
	{"internal/testkit/faults/*.go", "a test's temporary folder"},
	{"log/roll.go", "the store's own folder"},
	{"internal/catalog/seal.go", "beside the file of a view"},
	{"internal/catalog/file.go", "a view's file, which the configuration names"},
	{"internal/catalog/listed.go", "a scratch folder"},
	{"internal/catalog/lock.go", "the folder of views"},
	{"internal/catalog/ownfiles.go", "the folder of views; the names of files are checked"},
	{"internal/catalog/verify.go", "a scratch folder"},
	{"projector/snapshotter.go", "a view's cursor"},
	{"snapshot/erase.go", "snapshots, by a subject whose id is escaped"},
	{"snapshot/files.go", "snapshots, by a subject whose id is escaped"},
	{"stores/ailoop/file.go", "a file that the caller names, also through a link, as in the original"},
	{"internal/testkit/layouttest/*.go", "for tests"},
	{"stores/perstack/filesystem.go", "a setting's file where the caller says; the default escapes the ids"},
	{"internal/storecopy/table.go", "a table of the state folder, named after two stores"},
	{"internal/tree/sqlite.go", "what a tree remembers, in the store's own folder"},
}

// A file is written outside of tally's own folders only where its row says who named it.
func TestWrites(t *testing.T) {
	t.Run("B-05 who writes files at any path", func(t *testing.T) {
		used := make(map[int]bool)
		sources(t, func(name string, fset *token.FileSet, file *ast.File) {
			if strings.HasSuffix(name, "_test.go") {
				return
			}
			ast.Inspect(file, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				pkg, ok := sel.X.(*ast.Ident)
				if !ok || !slices.Contains(strings.Fields(writes[pkg.Name]), sel.Sel.Name) {
					return true
				}
				row := writerOf(name)
				used[row] = true
				if row < 0 {
					t.Errorf("%v calls %s.%s: a name that is not tally's own goes through os.Root or a formats.Dir; else writers needs a row", fset.Position(n.Pos()), pkg.Name, sel.Sel.Name)
				}
				return true
			})
		})
		for i, w := range writers {
			if !used[i] {
				t.Errorf("%s writes no files at any path any more: take its row out of writers", w.file)
			}
		}
	})
}

// writerOf returns the row of a file, or -1.
func writerOf(name string) int {
	for i, w := range writers {
		if match, err := path.Match(w.file, strings.ReplaceAll(name, `\`, "/")); err == nil && match {
			return i
		}
	}
	return -1
}

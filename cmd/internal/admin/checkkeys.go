package admin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/internal/storedir"
)

// keysCheck is the name of checks of the file of keys. A store works without that file.
const keysCheck = "keys"

// keys checks the file of keys, and whether sealed documents need one.
func (x *examination) keys() {
	ring, err := sealed.FromEnvironment()
	switch n := x.sealedDocuments(); {
	case errors.Is(err, sealed.ErrNoKey) && n > 0:
		x.warn(keysCheck, fmt.Sprintf("%s sealed, and %s is not set, so they cannot be opened", plain.Count(n, "document")+isAre(n), sealed.Variable),
			"set the variable to the file of keys, if this user should open them; everything else works without")
	case errors.Is(err, sealed.ErrNoKey):
		x.ok(keysCheck, "%s is not set: settings with secrets are not stored", sealed.Variable)
	case err != nil:
		x.bad(keysCheck, cli.ExitCode(err), err.Error(), "tally secrets --help describes the file. Without it, sealed documents do not open, and settings with secrets are not stored")
	case x.isBeside(os.Getenv(sealed.Variable)):
		x.warn(keysCheck, "the file of keys is inside the store, so a copy of the store includes the keys", "move the file elsewhere, and keep a copy of it away from the store")
	default:
		x.ok(keysCheck, "%s in %s, and %q seals; tally secrets check tries all sealed documents", plain.Count(len(ring.IDs()), "key"), os.Getenv(sealed.Variable), ring.Newest())
	}
}

// sealedDocuments returns the number of sealed documents in all namespaces, according to the catalog.
func (x *examination) sealedDocuments() (n int) {
	if x.config.Backend != config.Local || x.place.State != storedir.Present {
		return 0
	}
	r, err := catalog.Open(x.ctx, x.place.Dir)
	if err != nil {
		return 0 // the check of the views reports it
	}
	defer r.Close()
	live, err := r.Live(x.ctx)
	if err != nil {
		return 0
	}
	for _, l := range live {
		if l.Kind == sealed.Kind {
			n += l.Documents
		}
	}
	return n
}

// isBeside reports whether a file is in the directory of the store, after resolving links.
func (x *examination) isBeside(path string) bool {
	if x.config.Backend != config.Local {
		return false
	}
	file, err := filepath.EvalSymlinks(path)
	dir, err2 := filepath.EvalSymlinks(x.config.Store)
	if errors.Join(err, err2) != nil {
		return false
	}
	if file, err = filepath.Abs(file); err != nil {
		return false
	}
	return strings.HasPrefix(file, dir+string(filepath.Separator))
}

// secrets opens all sealed documents. Without keys it does nothing, because the check keys reports that.
func (x *examination) secrets(st *tally.Store) error {
	ring, err := sealed.FromEnvironment()
	if err != nil {
		return nil
	}
	c, err := checkSecrets(x.ctx, st, ring)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d of %d sealed %s", c.Open, c.Documents, opens(c.Documents))
	if code := cli.ExitCode(closedCode(c.Closed)); code != cli.OK {
		x.bad(keysCheck, code, text+c.missing(), "tally secrets check lists them; put a missing key back into the file, anywhere but last")
		return nil
	}
	x.ok(keysCheck, "%s", text)
	return nil
}

// missing names the keys that documents need and the file lacks.
func (c *secretsChecked) missing() string {
	var ids []string
	for _, k := range c.Keys {
		if !k.Known {
			ids = append(ids, fmt.Sprintf("%q", k.ID))
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return ": " + strings.Join(ids, ", ") + " not in the file of keys"
}
